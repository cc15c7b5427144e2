// Checker reads a history from standard input and says of each object whether its operations are linearizable, by
// Porcupine. A line is one operation, in the form that crates/harness/src/raft_chaos/history.rs writes:
//
//	register:7 3 1000 2000 write 5 =
//	register:7 4 1500 ? write 6
//
// that is the object, the client, when it was called and when it returned in nanoseconds, the operation with its
// numbers, and the answer. An operation with `?` may have taken effect at any time since its call, or not at all; one
// with `!` has not. The output has a line for each object that is not linearizable or that could not be decided in
// time, with details in lines that begin with `|`, and a last line with totals, without which a run says nothing.
package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// detailsMax is the number of operations that are shown on each side of a violation.
const detailsMax = 12

type input struct {
	verb    string
	numbers []int64
	line    string
}

// answer is nil for an operation whose outcome is unknown.
type answer []int64

func main() {
	seconds := 60
	if len(os.Args) > 1 {
		var err error
		if seconds, err = strconv.Atoi(os.Args[1]); err != nil {
			fail("not a number of seconds: %s", os.Args[1])
		}
	}
	histories, order := read()
	operations := 0
	for _, object := range order {
		operations += len(histories[object])
		check(object, histories[object], time.Duration(seconds)*time.Second)
	}
	fmt.Printf("checked %d objects, %d operations\n", len(order), operations)
}

func fail(format string, values ...interface{}) {
	fmt.Fprintf(os.Stderr, "checker: "+format+"\n", values...)
	os.Exit(2)
}

// read returns the operations of each object, and the objects in the order in which they come.
func read() (map[string][]porcupine.Operation, []string) {
	histories, order := map[string][]porcupine.Operation{}, []string{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.TrimSpace(line) == "" {
			continue
		}
		object, operation, took := parse(line)
		if _, known := histories[object]; !known {
			histories[object] = nil
			order = append(order, object)
		}
		if took {
			histories[object] = append(histories[object], operation)
		}
	}
	if err := lines.Err(); err != nil {
		fail("reading: %v", err)
	}
	return histories, order
}

// parse reads a line; took is false for an operation that has certainly had no effect.
func parse(line string) (object string, operation porcupine.Operation, took bool) {
	left, right, answered := strings.Cut(line, "=")
	words := strings.Fields(left)
	if len(words) < 5 {
		fail("not an operation: %s", line)
	}
	operation.ClientId = int(number(words[1], line))
	operation.Call = number(words[2], line)
	operation.Input = input{words[4], numbers(words[5:], line), line}
	switch words[3] {
	case "!":
		return words[0], operation, false
	case "?":
		operation.Return, operation.Output = math.MaxInt64, answer(nil)
	default:
		if !answered {
			fail("an operation that returned has an answer: %s", line)
		}
		operation.Return = number(words[3], line)
		operation.Output = append(answer{}, numbers(strings.Fields(right), line)...)
	}
	return words[0], operation, true
}

func number(word, line string) int64 {
	value, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		fail("%s is not a number: %s", word, line)
	}
	return value
}

func numbers(words []string, line string) []int64 {
	values := make([]int64, 0, len(words))
	for _, word := range words {
		values = append(values, number(word, line))
	}
	return values
}

func check(object string, history []porcupine.Operation, timeout time.Duration) {
	model := modelOf(strings.SplitN(object, ":", 2)[0])
	switch porcupine.CheckOperationsTimeout(model, history, timeout) {
	case porcupine.Ok:
	case porcupine.Unknown:
		fmt.Printf("undecided %s: %d operations in %v\n", object, len(history), timeout)
	case porcupine.Illegal:
		fmt.Printf("illegal %s\n", object)
		explain(model, history, timeout)
	}
}

// explain prints the end of the longest order that fits, and the earliest operations that fit nowhere behind it.
func explain(model porcupine.Model, history []porcupine.Operation, timeout time.Duration) {
	_, info := porcupine.CheckOperationsVerbose(model, history, timeout)
	var longest []porcupine.Operation
	for _, partition := range info.PartialLinearizationsOperations() {
		for _, fitting := range partition {
			if len(fitting) > len(longest) {
				longest = fitting
			}
		}
	}
	fits := map[string]bool{}
	for _, operation := range longest {
		fits[operation.Input.(input).line] = true
	}
	from := len(longest) - detailsMax
	if from < 0 {
		from = 0
	}
	fmt.Printf("| the longest order that fits has %d of %d operations, and ends so:\n", len(longest), len(history))
	for _, operation := range longest[from:] {
		fmt.Printf("|   %s\n", operation.Input.(input).line)
	}
	rest := []porcupine.Operation{}
	for _, operation := range history {
		if !fits[operation.Input.(input).line] {
			rest = append(rest, operation)
		}
	}
	sort.Slice(rest, func(i, j int) bool { return rest[i].Return < rest[j].Return })
	fmt.Printf("| these come next, and none of them fits behind it:\n")
	for at, operation := range rest {
		if at == detailsMax {
			fmt.Printf("|   and %d more\n", len(rest)-at)
			break
		}
		fmt.Printf("|   %s\n", operation.Input.(input).line)
	}
}
