// What concerns other clients: messages, events, the list of clients, a pool whose connections are killed, passwords.
package main

import (
	"fmt"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// The next message, within half a minute.
func receive(p *redis.PubSub) *redis.Message {
	end := time.Now().Add(30 * time.Second)
	for time.Now().Before(end) {
		if message, ok := must(p.ReceiveTimeout(ctx, 30*time.Second)).(*redis.Message); ok {
			return message
		}
	}
	fatal("no message came")
	return nil
}

// Waits for the answer to a subscription: how many there are then.
func subscribed(p *redis.PubSub, kind, channel string, count int) {
	answer, ok := must(p.ReceiveTimeout(ctx, 30*time.Second)).(*redis.Subscription)
	check("an answer to a subscription", ok, true)
	check("a subscription", *answer, redis.Subscription{Kind: kind, Channel: channel, Count: count})
}

func messages(r *redis.Client) {
	p := r.Subscribe(ctx, "news", "weather")
	subscribed(p, "subscribe", "news", 1)
	subscribed(p, "subscribe", "weather", 2)
	must(0, p.PSubscribe(ctx, "n*s"))
	subscribed(p, "psubscribe", "n*s", 3)
	check("two subscriptions hear it", must(r.Publish(ctx, "news", "first").Result()), int64(2))
	check("a message", *receive(p), redis.Message{Channel: "news", Payload: "first"})
	check("by its pattern", *receive(p), redis.Message{Channel: "news", Pattern: "n*s", Payload: "first"})
	channels := must(r.PubSubChannels(ctx, "*").Result())
	sort.Strings(channels)
	check("channels", channels, []string{"news", "weather"})
	check("subscribers", must(r.PubSubNumSub(ctx, "news", "none").Result()), map[string]int64{"news": 1, "none": 0})
	check("patterns", must(r.PubSubNumPat(ctx).Result()), int64(1))
	must(0, p.Unsubscribe(ctx, "news"))
	subscribed(p, "unsubscribe", "news", 2)
	must(0, p.Ping(ctx, "there"))
	check("a ping", must(p.ReceiveTimeout(ctx, 30*time.Second)).(*redis.Pong).Payload, "there")
	must(0, p.Close())

	s := r.SSubscribe(ctx, "orders")
	subscribed(s, "ssubscribe", "orders", 1)
	check("publish does not reach it", must(r.Publish(ctx, "orders", "x").Result()), int64(0))
	check("spublish does", must(r.SPublish(ctx, "orders", "y").Result()), int64(1))
	check("a sharded message", *receive(s), redis.Message{Channel: "orders", Payload: "y"})
	check("sharded channels", must(r.PubSubShardChannels(ctx, "*").Result()), []string{"orders"})
	check("their subscribers", must(r.PubSubShardNumSub(ctx, "orders").Result()), map[string]int64{"orders": 1})
	must(0, s.Close())

	// From several clients at once, through the channel that go-redis offers.
	p = r.Subscribe(ctx, "tasks")
	subscribed(p, "subscribe", "tasks", 1)
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			for n := 0; n < 250; n++ {
				must(r.Publish(ctx, "tasks", fmt.Sprintf("%d:%d", i, n)).Result())
			}
		}(i)
	}
	next := map[string]int{}
	heard := p.Channel(redis.WithChannelSize(2000), redis.WithChannelSendTimeout(30*time.Second))
	for count := 0; count < 1000; count++ {
		select {
		case message := <-heard:
			from, number, _ := strings.Cut(message.Payload, ":")
			check("messages of one client keep their order", number, fmt.Sprint(next[from]))
			next[from]++
		case <-time.After(30 * time.Second):
			fatal("%d messages of 1000 came", count)
		}
	}
	group.Wait()
	must(0, p.Close())
}

func events(r *redis.Client) {
	must(r.ConfigSet(ctx, "notify-keyspace-events", "Egx$").Result())
	p := r.PSubscribe(ctx, "__keyevent@*__:*")
	subscribed(p, "psubscribe", "__keyevent@*__:*", 1)
	must(r.Set(ctx, "watched", "1", 30*time.Millisecond).Result())
	for _, event := range []string{"set", "expire", "expired"} {
		message := receive(p)
		check("an event", []string{message.Channel, message.Payload}, []string{"__keyevent@0__:" + event, "watched"})
	}
	must(0, p.Close())
	must(r.ConfigSet(ctx, "notify-keyspace-events", "").Result())
}

// The ids of the clients with a name, and their fields as the list has them.
func named(r *redis.Client, name string) []string {
	var ids []string
	for _, line := range strings.Split(strings.TrimSpace(must(r.ClientList(ctx).Result())), "\n") {
		if strings.Contains(line, " name="+name+" ") {
			ids = append(ids, strings.TrimPrefix(strings.Fields(line)[0], "id="))
		}
	}
	return ids
}

func clients(r *redis.Client, protocol int) {
	info := must(r.ClientInfo(ctx).Result())
	check("what it knows of itself", []interface{}{info.Name, info.LibName != "", info.Resp}, []interface{}{"gopher", true, protocol})
	pool := connect(protocol)
	own := pool.Conn()
	must(own.ClientSetName(ctx, "victim").Result())
	id := must(own.ClientID(ctx).Result())
	check("it is in the list", named(r, "victim"), []string{fmt.Sprint(id)})
	check("kill by id", must(r.ClientKillByFilter(ctx, "ID", fmt.Sprint(id)).Result()), int64(1))
	check("its connection is closed", own.Ping(ctx).Err() != nil, true)
	check("kill of nobody", must(r.ClientKillByFilter(ctx, "ADDR", "127.0.0.1:1").Result()), int64(0))
	fails("kill of nobody by its address", r.ClientKill(ctx, "127.0.0.1:1").Err(), "ERR No such client")
	must(0, own.Close())
	must(0, pool.Close())

	begun := time.Now()
	check("pause", must(r.ClientPause(ctx, 30*time.Millisecond).Result()), true)
	check("what comes meanwhile waits", must(r.Set(ctx, "after", "the pause", 0).Result()), "OK")
	check("as long as it was to", time.Since(begun) >= 30*time.Millisecond, true)
}

// A pool whose connections are killed all the time: who asks again gets a new connection.
func pool(r *redis.Client) {
	settings := *r.Options()
	options := &settings
	options.ClientName, options.PoolSize, options.MaxRetries = "pooled", 8, 100
	options.MinRetryBackoff, options.MaxRetryBackoff = -1, -1
	pooled := redis.NewClient(options)
	var working atomic.Int32
	var group sync.WaitGroup
	for i := 0; i < 4; i++ {
		group.Add(1)
		working.Add(1)
		go func(i int) {
			defer group.Done()
			defer working.Add(-1)
			for n := 0; n < 300; n++ {
				must(pooled.Set(ctx, fmt.Sprintf("pooled:%d", i), n, 0).Result())
			}
			check("the last one stands", must(pooled.Get(ctx, fmt.Sprintf("pooled:%d", i)).Int()), 299)
		}(i)
	}
	kills := int64(0)
	for working.Load() > 0 || kills == 0 {
		for _, id := range named(r, "pooled") {
			kills += must(r.ClientKillByFilter(ctx, "ID", id).Result())
			break
		}
	}
	group.Wait()
	must(0, pooled.Close())

	// A subscriber that is killed subscribes again by itself.
	subscriber := redis.NewClient(options)
	p := subscriber.Subscribe(ctx, "survivors")
	heard := p.Channel()
	end := time.Now().Add(30 * time.Second)
	for killed := 0; killed < 3; {
		check("a subscriber comes back", time.Now().Before(end), true)
		if must(r.Publish(ctx, "survivors", "x").Result()) == 0 {
			time.Sleep(time.Millisecond)
			continue
		}
		select {
		case <-heard:
			killed++
			must(r.ClientKillByFilter(ctx, "TYPE", "pubsub").Result())
		case <-time.After(time.Second):
		}
	}
	must(0, p.Close())
	must(0, subscriber.Close())
}

func passwords(r *redis.Client) {
	must(r.ConfigSet(ctx, "requirepass", "s3cret").Result())
	with := func(user, password string) error {
		settings := *r.Options()
		options := &settings
		options.Username, options.Password = user, password
		other := redis.NewClient(options)
		defer other.Close()
		return other.Ping(ctx).Err()
	}
	fails("without a password", with("", ""), "NOAUTH Authentication required.")
	fails("a wrong one", with("", "wrong"), "WRONGPASS invalid username-password pair or user is disabled.")
	check("the right one", with("", "s3cret"), nil)
	check("with the user's name", with("default", "s3cret"), nil)
	must(r.ConfigSet(ctx, "requirepass", "").Result())
	check("none again", with("", ""), nil)
}

func operators(r *redis.Client) {
	before := must(r.LastSave(ctx).Result())
	check("a backup", must(r.BgSave(ctx).Result()), "Background saving started")
	end := time.Now().Add(30 * time.Second)
	for strings.Contains(must(r.Info(ctx, "persistence").Result()), "rdb_bgsave_in_progress:1") {
		check("it ends", time.Now().Before(end), true)
	}
	check("it is well", strings.Contains(must(r.Info(ctx, "persistence").Result()), "rdb_last_bgsave_status:ok"), true)
	check("lastsave", must(r.LastSave(ctx).Result()) >= before, true)
	must(r.ConfigSet(ctx, "slowlog-log-slower-than", "0").Result())
	check("get of nothing", r.Get(ctx, "seen in the slow log").Err(), redis.Nil)
	must(r.ConfigSet(ctx, "slowlog-log-slower-than", "10000").Result())
	found := false
	for _, entry := range must(r.SlowLogGet(ctx, 100).Result()) {
		if strings.Join(entry.Args, " ") == "get seen in the slow log" {
			check("its client", []interface{}{entry.ClientName, strings.HasPrefix(entry.ClientAddr, "127.0.0.1:")}, []interface{}{"gopher", true})
			check("its times", time.Since(entry.Time) < time.Minute && entry.Duration >= 0, true)
			found = true
		}
	}
	check("an entry of the slow log", found, true)
	check("memory of a key", must(r.MemoryUsage(ctx, "after").Result()) > 0, true)
	check("time", time.Since(must(r.Time(ctx).Result())).Abs() < 5*time.Second, true)
	fails("no cluster", r.ClusterInfo(ctx).Err(), "ERR This instance has cluster support disabled")
}
