// Streams with consumer groups: one consumer after the other, workers that wait, and the end of a group.
package main

import (
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

func added(r *redis.Client, stream string, number int) string {
	return must(r.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: fmt.Sprintf("%d-1", number), Values: []string{"number", fmt.Sprint(number)}}).Result())
}

func ids(messages []redis.XMessage) []string {
	found := []string{}
	for _, message := range messages {
		found = append(found, message.ID)
	}
	return found
}

func newOf(r *redis.Client, consumer string, count int64) []string {
	got, err := r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: consumer, Streams: []string{"s", ">"}, Count: count, Block: -1}).Result()
	if err == redis.Nil {
		return nil
	}
	return ids(must(got, err)[0].Messages)
}

func groups(r *redis.Client) {
	check("xgroup create", must(r.XGroupCreateMkStream(ctx, "s", "g", "0").Result()), "OK")
	fails("a group that is there", r.XGroupCreate(ctx, "s", "g", "0").Err(), "BUSYGROUP")
	for number := 1; number <= 5; number++ {
		check("xadd", added(r, "s", number), fmt.Sprintf("%d-1", number))
	}
	check("what is new", newOf(r, "alice", 2), []string{"1-1", "2-1"})
	check("what is new then", newOf(r, "bob", 0), []string{"3-1", "4-1", "5-1"})
	check("nothing new", newOf(r, "bob", 0), []string(nil))
	pending := must(r.XPending(ctx, "s", "g").Result())
	check("a summary", *pending, redis.XPending{Count: 5, Lower: "1-1", Higher: "5-1", Consumers: map[string]int64{"alice": 2, "bob": 3}})
	found := must(r.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: "s", Group: "g", Start: "-", End: "+", Count: 10, Consumer: "bob"}).Result())
	check("in detail", []interface{}{len(found), found[0].ID, found[0].Consumer, found[0].RetryCount}, []interface{}{3, "3-1", "bob", int64(1)})
	check("xack", must(r.XAck(ctx, "s", "g", "1-1", "3-1", "9-9").Result()), int64(2))
	claim := &redis.XClaimArgs{Stream: "s", Group: "g", Consumer: "carol", Messages: []string{"2-1"}}
	check("xclaim", ids(must(r.XClaim(ctx, claim).Result())), []string{"2-1"})
	claim.Messages = []string{"4-1"}
	check("xclaim, ids only", must(r.XClaimJustID(ctx, claim).Result()), []string{"4-1"})
	messages, cursor, err := r.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: "s", Group: "g", Consumer: "dave", Start: "0", Count: 2}).Result()
	check("xautoclaim", []interface{}{ids(must(messages, err)), cursor}, []interface{}{[]string{"2-1", "4-1"}, "5-1"})
	group := must(r.XInfoGroups(ctx, "s").Result())[0]
	check("xinfo groups", group, redis.XInfoGroup{Name: "g", Consumers: 4, Pending: 3, LastDeliveredID: "5-1", EntriesRead: 5, Lag: 0})
	consumers := must(r.XInfoConsumers(ctx, "s", "g").Result())
	check("xinfo consumers", []interface{}{len(consumers), consumers[3].Name, consumers[3].Pending, consumers[0].Inactive >= 0}, []interface{}{4, "dave", int64(2), true})
	full := must(r.XInfoStreamFull(ctx, "s", 10).Result())
	check("xinfo stream full", []interface{}{full.Length, full.Groups[0].PelCount, len(full.Groups[0].Consumers)}, []interface{}{int64(5), int64(3), 4})
	check("xgroup createconsumer", must(r.XGroupCreateConsumer(ctx, "s", "g", "eve").Result()), int64(1))
	check("xgroup delconsumer", must(r.XGroupDelConsumer(ctx, "s", "g", "dave").Result()), int64(2))
	check("xgroup setid", must(r.XGroupSetID(ctx, "s", "g", "3").Result()), "OK")
	check("delivered again", newOf(r, "eve", 0), []string{"3-1", "4-1", "5-1"})
	check("xgroup destroy", must(r.XGroupDestroy(ctx, "s", "g").Result()), int64(1))
	fails("no group", r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"s", ">"}}).Err(), "NOGROUP")
}

// Four that wait, one that adds: each entry is delivered to one of them.
func workers(r *redis.Client) {
	const total = 500
	must(r.XGroupCreateMkStream(ctx, "jobs", "g", "$").Result())
	var group sync.WaitGroup
	var lock sync.Mutex
	var count atomic.Int64
	seen := []int{}
	for worker := 0; worker < 4; worker++ {
		group.Add(1)
		go func(name string) {
			defer group.Done()
			for count.Load() < total {
				got, err := r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: name, Streams: []string{"jobs", ">"}, Count: 3, Block: 50 * time.Millisecond}).Result()
				if err == redis.Nil {
					continue
				}
				for _, message := range must(got, err)[0].Messages {
					var number int
					fmt.Sscan(message.Values["number"].(string), &number)
					check("xack", must(r.XAck(ctx, "jobs", "g", message.ID).Result()), int64(1))
					lock.Lock()
					seen = append(seen, number)
					lock.Unlock()
					count.Add(1)
				}
			}
		}(fmt.Sprint("worker ", worker))
	}
	for number := 1; number <= total; number++ {
		added(r, "jobs", number)
	}
	group.Wait()
	sort.Ints(seen)
	check("each once", []int{len(seen), seen[0], seen[total-1]}, []int{total, 1, total})
	check("nothing is pending", must(r.XPending(ctx, "jobs", "g").Result()).Count, int64(0))
}

// Who waits learns that what it waits for has gone.
func gone(r *redis.Client) {
	ends := map[string]func(){
		"NOGROUP No such key 's' or consumer group 'g'": func() { must(r.XGroupDestroy(ctx, "s", "g").Result()) },
		"WRONGTYPE": func() { must(r.Set(ctx, "s", "text", 0).Result()) },
	}
	for text, end := range ends {
		must(r.Del(ctx, "s").Result())
		must(r.XGroupCreateMkStream(ctx, "s", "g", "$").Result())
		failed := make(chan error)
		go func() {
			failed <- r.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"s", ">"}, Block: 0}).Err()
		}()
		blocked(r, 1)
		end()
		fails("the end of a wait", <-failed, text)
	}
}

func streams(r *redis.Client) {
	must(r.FlushAll(ctx).Result())
	groups(r)
	workers(r)
	gone(r)
}
