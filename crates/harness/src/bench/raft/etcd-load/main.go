// etcd-load: etcd's own client in a closed loop, as etcd's `benchmark put` and `benchmark range` have it: as many
// clients as connections, one request in flight on each.
//
//	etcd-load leader ENDPOINT,ENDPOINT,...
//	etcd-load fill   ENDPOINT CONNECTIONS VALUE_BYTES KEYS
//	etcd-load put    ENDPOINT CONNECTIONS VALUE_BYTES KEYS WARM_SECONDS SECONDS
//	etcd-load get    ENDPOINT CONNECTIONS VALUE_BYTES KEYS WARM_SECONDS SECONDS
//	etcd-load retry  ENDPOINT,ENDPOINT,...
//
// put and get print `ready` when they are warm and begin when a line comes in; then they print requests, seconds, p50
// and p99 in microseconds, and their own CPU seconds. An error ends the program.
package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// patience is the longest wait for a connection, a leader or a reply.
const patience = 30 * time.Second

func main() {
	if len(os.Args) < 3 {
		fail(fmt.Errorf("see the head of main.go for the arguments"))
	}
	endpoints := strings.Split(os.Args[2], ",")
	switch os.Args[1] {
	case "leader":
		leader(endpoints)
	case "fill":
		newLoad(endpoints).fill()
	case "put":
		newLoad(endpoints).measure(load.put)
	case "get":
		newLoad(endpoints).measure(load.get)
	case "retry":
		retry(endpoints)
	default:
		fail(fmt.Errorf("no mode %q", os.Args[1]))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "etcd-load:", err)
	os.Exit(1)
}

func number(at int) int {
	if at >= len(os.Args) {
		fail(fmt.Errorf("argument %d is missing", at))
	}
	value, err := strconv.ParseFloat(os.Args[at], 64)
	if err != nil {
		fail(err)
	}
	return int(value)
}

func seconds(at int) time.Duration {
	value, err := strconv.ParseFloat(os.Args[at], 64)
	if err != nil {
		fail(err)
	}
	return time.Duration(value * float64(time.Second))
}

// connect makes a client, which logs nothing: errors come back from its calls.
func connect(endpoints []string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: patience, Logger: zap.NewNop()})
	if err != nil {
		fail(err)
	}
	return client
}

// leader waits until all members agree on a leader, and prints its place among the endpoints.
func leader(endpoints []string) {
	client := connect(endpoints)
	begin := time.Now()
	for {
		found, agreed := -1, 0
		var id uint64
		for at, endpoint := range endpoints {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			status, err := client.Status(ctx, endpoint)
			cancel()
			if err != nil || status.Leader == 0 || (id != 0 && id != status.Leader) {
				break
			}
			id = status.Leader
			agreed++
			if status.Header.MemberId == status.Leader {
				found = at
			}
		}
		if found >= 0 && agreed == len(endpoints) {
			fmt.Println(found)
			return
		}
		if time.Since(begin) > patience {
			fail(fmt.Errorf("no leader within %v", patience))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// load has the clients of one run and the values that they write: pieces of random bytes, which do not compress.
type load struct {
	clients    []*clientv3.Client
	pool       []byte
	valueBytes int
	keys       int
}

const poolBytes = 1 << 16

func newLoad(endpoints []string) load {
	connections := number(3)
	l := load{valueBytes: number(4), keys: number(5)}
	l.pool = make([]byte, poolBytes+l.valueBytes)
	rand.New(rand.NewSource(1)).Read(l.pool)
	for i := 0; i < connections; i++ {
		l.clients = append(l.clients, connect(endpoints))
	}
	return l
}

func key(n int) string { return fmt.Sprintf("key:%012d", n) }

func (l load) value(n int) string {
	begin := n * 61 % poolBytes
	return string(l.pool[begin : begin+l.valueBytes])
}

func (l load) put(client *clientv3.Client, n int) error {
	_, err := client.Put(context.Background(), key(n), l.value(n))
	return err
}

// get reads linearizably, as etcd does unless it is told otherwise.
func (l load) get(client *clientv3.Client, n int) error {
	reply, err := client.Get(context.Background(), key(n))
	if err != nil {
		return err
	}
	if len(reply.Kvs) != 1 || len(reply.Kvs[0].Value) != l.valueBytes {
		return fmt.Errorf("%s has not its value", key(n))
	}
	return nil
}

// fill writes each key once.
func (l load) fill() {
	var next int64 = -1
	l.each(func(_ int, client *clientv3.Client) {
		for {
			n := int(atomic.AddInt64(&next, 1))
			if n >= l.keys {
				return
			}
			if err := l.put(client, n); err != nil {
				fail(err)
			}
		}
	})
}

// each calls run for each client at the same time, and waits for all.
func (l load) each(run func(at int, client *clientv3.Client)) {
	var all sync.WaitGroup
	for at, client := range l.clients {
		all.Add(1)
		go func(at int, client *clientv3.Client) {
			defer all.Done()
			run(at, client)
		}(at, client)
	}
	all.Wait()
}

func (l load) measure(request func(load, *clientv3.Client, int) error) {
	l.run(request, seconds(6))
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		fail(err)
	}
	before := cpuSeconds()
	latencies, took := l.run(request, seconds(7))
	cpu := cpuSeconds() - before
	if len(latencies) == 0 {
		fail(fmt.Errorf("no request came to its end"))
	}
	sort.Slice(latencies, func(i, j int) bool { return latencies[i] < latencies[j] })
	at := func(percent int) uint32 { return latencies[(len(latencies)-1)*percent/100] }
	fmt.Println(len(latencies), took.Seconds(), at(50), at(99), cpu)
}

// run sends requests for so long; returns the microseconds of each, and how long it took to the last reply.
func (l load) run(request func(load, *clientv3.Client, int) error, window time.Duration) ([]uint32, time.Duration) {
	of := make([][]uint32, len(l.clients))
	begin := time.Now()
	end := begin.Add(window)
	l.each(func(at int, client *clientv3.Client) {
		random := rand.New(rand.NewSource(int64(at) + begin.UnixNano()))
		for sent := time.Now(); sent.Before(end); sent = time.Now() {
			if err := request(l, client, random.Intn(l.keys)); err != nil {
				fail(err)
			}
			of[at] = append(of[at], uint32(time.Since(sent).Microseconds()))
		}
	})
	took := time.Since(begin)
	var latencies []uint32
	for _, some := range of {
		latencies = append(latencies, some...)
	}
	return latencies, took
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	of := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return of(usage.Utime) + of(usage.Stime)
}

// gap is how long an acknowledgement is in coming at least that retry prints.
const gap = 50 * time.Millisecond

// retry writes one value after the other, each again until it is acknowledged. Of an acknowledgement that comes long
// after the one before it prints when that was, in nanoseconds since 1970. It ends with its standard input.
func retry(endpoints []string) {
	client := connect(endpoints)
	go func() {
		last := time.Now()
		for n := 0; ; n++ {
			for !written(client, n) {
				time.Sleep(time.Millisecond)
			}
			now := time.Now()
			if now.Sub(last) > gap {
				fmt.Println(now.UnixNano())
			}
			last = now
			time.Sleep(time.Millisecond)
		}
	}()
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func written(client *clientv3.Client, n int) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	_, err := client.Put(ctx, "retried", strconv.Itoa(n))
	return err == nil
}
