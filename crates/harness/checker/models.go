package main

import (
	"sort"

	"github.com/anishathalye/porcupine"
)

// The state of every model is a list of numbers, and 0 stands for what is missing. A model says what an operation
// answers in a state, and the state behind it; it does not change the state that it gets.
type step func(state []int64, verb string, numbers []int64) (answers, next []int64)

// missing is the number that no operation writes.
const missing = 0

func modelOf(kind string) porcupine.Model {
	var apply step
	var first []int64
	switch kind {
	case "register":
		apply, first = register, []int64{missing}
	case "counter":
		apply, first = counter, []int64{0}
	case "list":
		apply, first = list, nil
	case "sorted":
		apply, first = sorted, nil
	case "pair":
		apply, first = pair, []int64{missing, missing}
	default:
		fail("no model for %s", kind)
	}
	return porcupine.Model{
		Init: func() interface{} { return first },
		Step: func(state, in, out interface{}) (bool, interface{}) {
			answers, next := apply(state.([]int64), in.(input).verb, in.(input).numbers)
			given := out.(answer)
			return given == nil || equal(given, answers), next
		},
		Equal: func(one, other interface{}) bool { return equal(one.([]int64), other.([]int64)) },
		Hash:  func(state interface{}) uint64 { return hash(state.([]int64)) },
	}
}

func equal(one, other []int64) bool {
	if len(one) != len(other) {
		return false
	}
	for at := range one {
		if one[at] != other[at] {
			return false
		}
	}
	return true
}

// hash is FNV-1a over the numbers.
func hash(numbers []int64) uint64 {
	sum := uint64(14695981039346656037)
	for _, number := range numbers {
		sum = (sum ^ uint64(number)) * 1099511628211
	}
	return sum
}

// register: read = held; write new; swap old new = held before, and it took place if that is old.
func register(state []int64, verb string, numbers []int64) ([]int64, []int64) {
	switch verb {
	case "read":
		return state, state
	case "write":
		return nil, numbers[:1]
	case "swap":
		if state[0] == numbers[0] {
			return state, numbers[1:2]
		}
		return state, state
	}
	fail("a register has no %s", verb)
	return nil, nil
}

// counter: read = sum; add by = sum behind it.
func counter(state []int64, verb string, numbers []int64) ([]int64, []int64) {
	switch verb {
	case "read":
		return state, state
	case "add":
		next := []int64{state[0] + numbers[0]}
		return next, next
	}
	fail("a counter has no %s", verb)
	return nil, nil
}

// list: read = elements; append element = length behind it.
func list(state []int64, verb string, numbers []int64) ([]int64, []int64) {
	switch verb {
	case "read":
		return state, state
	case "append":
		next := append(append([]int64{}, state...), numbers[0])
		return []int64{int64(len(next))}, next
	}
	fail("a list has no %s", verb)
	return nil, nil
}

// sorted: read = members and scores by turns, ascending by score, then by member; score member score = 1 if it is new;
// raise member by = score behind it; remove member = 1 if it was there.
func sorted(state []int64, verb string, numbers []int64) ([]int64, []int64) {
	if verb == "read" {
		return state, state
	}
	scores := map[int64]int64{}
	for at := 0; at < len(state); at += 2 {
		scores[state[at]] = state[at+1]
	}
	member := numbers[0]
	_, there := scores[member]
	answers := []int64{0}
	switch verb {
	case "score":
		scores[member] = numbers[1]
		if !there {
			answers[0] = 1
		}
	case "raise":
		scores[member] += numbers[1]
		answers[0] = scores[member]
	case "remove":
		delete(scores, member)
		if there {
			answers[0] = 1
		}
	default:
		fail("a sorted set has no %s", verb)
	}
	next := []int64{}
	for member := range scores {
		next = append(next, member)
	}
	sort.Slice(next, func(i, j int) bool {
		one, other := next[i], next[j]
		return scores[one] < scores[other] || scores[one] == scores[other] && one < other
	})
	pairs := make([]int64, 0, 2*len(next))
	for _, member := range next {
		pairs = append(pairs, member, scores[member])
	}
	return answers, pairs
}

// pair: read = both; both first second; exchange = both before it.
func pair(state []int64, verb string, numbers []int64) ([]int64, []int64) {
	switch verb {
	case "read":
		return state, state
	case "both":
		return nil, numbers[:2]
	case "exchange":
		return state, []int64{state[1], state[0]}
	}
	fail("a pair has no %s", verb)
	return nil, nil
}
