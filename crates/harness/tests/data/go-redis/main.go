// What a user of go-redis does with strings and keys (others.go: with other clients; collections.go, blocking.go: with collections; streams.go: with streams; caching.go: with a cache of their own), over RESP2 and RESP3; run by clients.rs with the port as its argument. With the word sentinel and ports: sentinel.go, run by the server's tests.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func fatal(format string, values ...interface{}) {
	fmt.Printf(format+"\n", values...)
	os.Exit(1)
}

func check(name string, got, expected interface{}) {
	if !reflect.DeepEqual(got, expected) {
		fatal("%s: %#v instead of %#v", name, got, expected)
	}
}

// The value of a call that must not fail.
func must[T any](value T, err error) T {
	if err != nil {
		_, _, line, _ := runtime.Caller(1)
		fatal("an unexpected error in line %d: %v", line, err)
	}
	return value
}

func fails(name string, err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		fatal("%s: %v instead of an error with %q", name, err, text)
	}
}

func connect(protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + os.Args[1], Protocol: protocol, ClientName: "gopher", MaxRetries: -1, PoolSize: 8,
	})
}

func connections(r *redis.Client, protocol int) {
	check("ping", must(r.Ping(ctx).Result()), "PONG")
	check("the name of the connection", must(r.ClientGetName(ctx).Result()), "gopher")
	check("an id", must(r.ClientID(ctx).Result()) > 0, true)
	check("info is read", strings.Contains(must(r.Info(ctx, "server").Result()), "tcp_port:"+os.Args[1]), true)
	check("settings", must(r.ConfigGet(ctx, "databases").Result()), map[string]string{"databases": "16"})
	command := must(r.Command(ctx).Result())["set"]
	check("the command table", []interface{}{command.Name, command.Arity, command.FirstKeyPos}, []interface{}{"set", int8(-3), int8(1)})
	// The same reply as a map or a list, as the protocol has it.
	_, isMap := must(r.Do(ctx, "CONFIG", "GET", "databases").Result()).(map[interface{}]interface{})
	check("maps are maps in RESP3", isMap, protocol == 3)
	fails("no such command", r.Do(ctx, "NOSUCH", "a").Err(), "ERR unknown command 'NOSUCH', with args beginning with: 'a' ")
	fails("too few arguments", r.Do(ctx, "GET").Err(), "ERR wrong number of arguments for 'get' command")
}

func values(r *redis.Client) {
	check("set", must(r.Set(ctx, "a", "1", 0).Result()), "OK")
	check("set nx", must(r.SetNX(ctx, "a", "2", 0).Result()), false)
	check("get of nothing", r.Get(ctx, "nothing").Err(), redis.Nil)
	check("incr", must(r.IncrBy(ctx, "n", 5).Result()), int64(5))
	check("incr by a fraction", must(r.IncrByFloat(ctx, "f", 0.5).Result()), 0.5)
	check("mget", must(r.MGet(ctx, "a", "nothing", "n").Result()), []interface{}{"1", nil, "5"})
	check("set, and get the one before", must(r.SetArgs(ctx, "a", "3", redis.SetArgs{Get: true, TTL: time.Minute}).Result()), "1")
	left := must(r.PTTL(ctx, "a").Result())
	check("pttl", left > 50*time.Second && left <= time.Minute, true)
	check("persist", must(r.Persist(ctx, "a").Result()), true)
	check("ttl of no deadline", must(r.TTL(ctx, "a").Result()), time.Duration(-1))
	check("ttl of nothing", must(r.TTL(ctx, "nothing").Result()), time.Duration(-2))
	check("getdel", must(r.GetDel(ctx, "a").Result()), "3")
	binary := []byte("\x00\xff\r\n$-1\r\n")
	must(r.Set(ctx, string(binary), binary, 0).Result())
	check("binary", must(r.Get(ctx, string(binary)).Bytes()), binary)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
	must(r.Set(ctx, "big", big, 0).Result())
	check("two megabytes", bytes.Equal(must(r.Get(ctx, "big").Bytes()), big), true)
	must(r.Set(ctx, "text", "x", 0).Result())
	fails("incr of a text", r.Incr(ctx, "text").Err(), "ERR value is not an integer or out of range")
	check("the code of an error", redis.HasErrorPrefix(r.Rename(ctx, "nothing", "x").Err(), "no such key"), true)
	check("copy", must(r.Copy(ctx, "n", "m", 0, false).Result()), int64(1))
	check("type", must(r.Type(ctx, "m").Result()), "string")
}

func pipelines(r *redis.Client) {
	replies := must(r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := 0; i < 1000; i++ {
			p.Incr(ctx, "piped")
		}
		return nil
	}))
	check("a pipeline", replies[999].(*redis.IntCmd).Val(), int64(1000))
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Incr(ctx, "text")
		p.Set(ctx, "after", "1", 0)
		return nil
	})
	fails("a pipeline with an error in it", err, "ERR value is not an integer")
	check("what is behind the error", must(r.Get(ctx, "after").Result()), "1")
}

func transactions(r *redis.Client) {
	replies := must(r.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "t", 1, 0)
		p.Incr(ctx, "t")
		p.Get(ctx, "t")
		return nil
	}))
	check("a transaction", replies[2].(*redis.StringCmd).Val(), "2")
	check("a watched key changed", r.Watch(ctx, func(tx *redis.Tx) error {
		must(r.Set(ctx, "t", "changed", 0).Result())
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "t", "lost", 0).Err() })
		return err
	}, "t"), redis.TxFailedErr)
	check("the other's value stands", must(r.Get(ctx, "t").Result()), "changed")
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for done := 0; done < 50; {
				err := r.Watch(ctx, func(tx *redis.Tx) error {
					n, err := tx.Get(ctx, "sum").Int()
					if err != nil && !errors.Is(err, redis.Nil) {
						return err
					}
					_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "sum", n+1, 0).Err() })
					return err
				}, "sum")
				if err == nil {
					done++
				} else if !errors.Is(err, redis.TxFailedErr) {
					fatal("an optimistic lock: %v", err)
				}
			}
		}()
	}
	group.Wait()
	check("optimistic locks of four clients", must(r.Get(ctx, "sum").Result()), "200")
}

func iterators(r *redis.Client) {
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := 0; i < 3000; i++ {
			p.Set(ctx, fmt.Sprintf("it:%d", i), i, 0)
		}
		return nil
	})
	must(0, err)
	seen := map[string]bool{}
	keys := r.Scan(ctx, 0, "it:*", 100).Iterator()
	for keys.Next(ctx) {
		seen[keys.Val()] = true
	}
	must(0, keys.Err())
	check("an iterator", len(seen), 3000)
	typed := r.ScanType(ctx, 0, "it:1*", 1000, "list").Iterator()
	check("an iterator over another type", typed.Next(ctx), false)
	must(r.FlushAll(ctx).Result())
	check("flushall", must(r.DBSize(ctx).Result()), int64(0))
}

func main() {
	if os.Args[1] == "sentinel" {
		follow(os.Args[2:])
	}
	for _, protocol := range []int{2, 3} {
		r := connect(protocol)
		connections(r, protocol)
		values(r)
		pipelines(r)
		transactions(r)
		messages(r)
		events(r)
		clients(r, protocol)
		pool(r)
		passwords(r)
		operators(r)
		iterators(r)
		hashes(r, protocol)
		lists(r)
		sets(r)
		sortedSets(r, protocol)
		sorting(r)
		blocking(r)
		streams(r)
		if protocol == 2 {
			caching(r)
		}
		must(r.FlushAll(ctx).Result())
		must(0, r.Close())
	}
	fmt.Println("all good")
}
