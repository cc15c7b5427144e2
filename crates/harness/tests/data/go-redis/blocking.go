// Pops that wait: their time ends, somebody pushes, the client gives up.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Waits until so many clients are blocked.
func blocked(r *redis.Client, count int) {
	end := time.Now().Add(30 * time.Second)
	for !strings.Contains(must(r.Info(ctx, "clients").Result()), fmt.Sprintf("blocked_clients:%d\r", count)) {
		check("clients come to wait or leave", time.Now().Before(end), true)
		time.Sleep(time.Millisecond)
	}
}

// All of them in one form: what they pop, as text.
type waitingPop struct {
	name string
	take func(r *redis.Client, ctx context.Context, timeout time.Duration) (string, error)
	push []interface{}
	got  string
}

var pops = []waitingPop{
	{"blpop", func(r *redis.Client, ctx context.Context, t time.Duration) (string, error) {
		got, err := r.BLPop(ctx, t, "none", "q").Result()
		return fmt.Sprint(got), err
	}, []interface{}{"RPUSH", "q", "x", "y"}, "[q x]"},
	{"brpop", func(r *redis.Client, ctx context.Context, t time.Duration) (string, error) {
		got, err := r.BRPop(ctx, t, "q", "none").Result()
		return fmt.Sprint(got), err
	}, []interface{}{"RPUSH", "q", "x", "y"}, "[q y]"},
	{"blmove", func(r *redis.Client, ctx context.Context, t time.Duration) (string, error) {
		return r.BLMove(ctx, "q", "to", "LEFT", "RIGHT", t).Result()
	}, []interface{}{"RPUSH", "q", "x", "y"}, "x"},
	{"brpoplpush", func(r *redis.Client, ctx context.Context, t time.Duration) (string, error) {
		return r.BRPopLPush(ctx, "q", "to", t).Result()
	}, []interface{}{"RPUSH", "q", "x", "y"}, "y"},
	{"blmpop", func(r *redis.Client, ctx context.Context, t time.Duration) (string, error) {
		key, got, err := r.BLMPop(ctx, t, "left", 5, "none", "q").Result()
		return fmt.Sprint(key, got), err
	}, []interface{}{"RPUSH", "q", "x", "y"}, "q[x y]"},
	{"bzpopmin", func(r *redis.Client, ctx context.Context, t time.Duration) (string, error) {
		got, err := r.BZPopMin(ctx, t, "none", "z").Result()
		return fmt.Sprintf("%+v", got), err
	}, []interface{}{"ZADD", "z", 1, "x", 2.5, "y"}, "&{Z:{Score:1 Member:x} Key:z}"},
	{"bzpopmax", func(r *redis.Client, ctx context.Context, t time.Duration) (string, error) {
		got, err := r.BZPopMax(ctx, t, "z", "none").Result()
		return fmt.Sprintf("%+v", got), err
	}, []interface{}{"ZADD", "z", 1, "x", 2.5, "y"}, "&{Z:{Score:2.5 Member:y} Key:z}"},
	{"bzmpop", func(r *redis.Client, ctx context.Context, t time.Duration) (string, error) {
		key, got, err := r.BZMPop(ctx, t, "max", 5, "none", "z").Result()
		return fmt.Sprint(key, got), err
	}, []interface{}{"ZADD", "z", 1, "x", 2.5, "y"}, "z[{2.5 y} {1 x}]"},
}

func blocking(r *redis.Client) {
	must(r.FlushAll(ctx).Result())
	var group sync.WaitGroup
	for _, pop := range pops {
		group.Add(1)
		go func(pop waitingPop) {
			defer group.Done()
			// go-redis knows whole seconds only.
			begun := time.Now()
			_, err := pop.take(r, ctx, time.Second)
			check(pop.name+" ends with its time", err, redis.Nil)
			check(pop.name+" has waited", time.Since(begun) >= time.Second, true)
		}(pop)
	}
	group.Wait()
	for _, pop := range pops {
		// It finds something at once.
		must(r.Do(ctx, pop.push...).Result())
		check(pop.name, must(pop.take(r, ctx, time.Second)), pop.got)
		must(r.Del(ctx, "q", "z", "to").Result())

		// It waits, without an end, until somebody pushes.
		answer := make(chan string)
		go func() { answer <- must(pop.take(r, ctx, 0)) }()
		blocked(r, 1)
		must(r.Do(ctx, pop.push...).Result())
		check(pop.name+" was waiting", <-answer, pop.got)
		must(r.Del(ctx, "q", "z", "to").Result())

		cancelled(r, pop)
	}
	crowd(r)
}

// A client whose context ends closes its connection (where it is told to look at contexts); what is pushed then is for others.
func cancelled(r *redis.Client, pop waitingPop) {
	settings := *r.Options()
	options := &settings
	options.ContextTimeoutEnabled, options.MaxRetries = true, -1
	own := redis.NewClient(options)
	limited, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	_, err := pop.take(own, limited, 0)
	cancel()
	var timeout interface{ Timeout() bool }
	ended := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
	check(fmt.Sprintf("%s ends with its context: %v", pop.name, err), ended, true)
	must(0, own.Close())
	blocked(r, 0)
	must(r.Do(ctx, pop.push...).Result())
	check("nothing was popped for who is gone", must(pop.take(r, ctx, time.Second)), pop.got)
	must(r.Del(ctx, "q", "z", "to").Result())

	// One that is cancelled before it is sent does nothing.
	limited, cancel = context.WithCancel(ctx)
	cancel()
	_, err = pop.take(r, limited, 0)
	check(pop.name+" is not sent", errors.Is(err, context.Canceled), true)
}

// Six that wait and two that push: each element comes once, over lists and over sorted sets.
func crowd(r *redis.Client) {
	const each, pushers, poppers = 500, 2, 3
	var group sync.WaitGroup
	var lock sync.Mutex
	seen := map[string]int{}
	note := func(element string) bool {
		if element == "end" || strings.HasPrefix(element, "~") {
			return false
		}
		lock.Lock()
		defer lock.Unlock()
		seen[element]++
		return true
	}
	settings := *r.Options()
	options := &settings
	options.PoolSize = 2 * poppers
	waiting := redis.NewClient(options)
	for i := 0; i < poppers; i++ {
		group.Add(2)
		go func() {
			defer group.Done()
			for note(must(waiting.BLPop(ctx, 0, "queue").Result())[1]) {
			}
		}()
		go func() {
			defer group.Done()
			for note(must(waiting.BZPopMin(ctx, 0, "ranks").Result()).Member.(string)) {
			}
		}()
	}
	var pushing sync.WaitGroup
	for i := 0; i < pushers; i++ {
		pushing.Add(1)
		go func(i int) {
			defer pushing.Done()
			for n := 0; n < each; n++ {
				must(r.RPush(ctx, "queue", fmt.Sprintf("l%d:%d", i, n)).Result())
				must(r.ZAdd(ctx, "ranks", redis.Z{Score: float64(n % 5), Member: fmt.Sprintf("z%d:%d", i, n)}).Result())
			}
		}(i)
	}
	pushing.Wait()
	for i := 0; i < poppers; i++ {
		must(r.RPush(ctx, "queue", "end").Result())
		must(r.ZAdd(ctx, "ranks", redis.Z{Score: 99, Member: fmt.Sprintf("~%d", i)}).Result())
	}
	group.Wait()
	must(0, waiting.Close())
	check("all elements came", len(seen), 2*each*pushers)
	for element, times := range seen {
		check(element+" came once", times, 1)
	}
	check("and nothing is left", must(r.Exists(ctx, "queue", "ranks").Result()), int64(0))
}
