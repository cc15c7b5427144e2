// A client-side cache as one builds it with go-redis over RESP2: one connection reads and keeps, and another one hears of changes.
package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The id of the connection that is subscribed to invalidations.
func listener(r *redis.Client) int64 {
	for _, line := range strings.Split(must(r.ClientList(ctx).Result()), "\n") {
		if strings.Contains(line, " sub=1 ") {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
			return must(strconv.ParseInt(id, 10, 64))
		}
	}
	fatal("nobody is subscribed")
	return 0
}

func caching(r *redis.Client) {
	invalidations := r.Subscribe(ctx, "__redis__:invalidate")
	must(invalidations.Receive(ctx))
	messages := invalidations.Channel()
	conn := r.Conn()
	tracked := redis.NewCmd(ctx, "CLIENT", "TRACKING", "ON", "REDIRECT", listener(r))
	must(0, conn.Process(ctx, tracked))
	check("tracking", tracked.Val(), "OK")
	heard := func(name string, expected []string) {
		select {
		case message := <-messages:
			check(name, message.PayloadSlice, expected)
		case <-time.After(20 * time.Second):
			fatal("%s: no message", name)
		}
	}
	must(r.MSet(ctx, "cached:1", "a", "cached:2", "b").Result())
	check("a read", must(conn.Get(ctx, "cached:1").Result()), "a")
	check("another read", must(conn.MGet(ctx, "cached:1", "cached:2").Result()), []interface{}{"a", "b"})
	must(r.Set(ctx, "cached:1", "c", 0).Result())
	heard("a change", []string{"cached:1"})
	must(r.Del(ctx, "cached:2").Result())
	heard("a removal", []string{"cached:2"})
	check("the next read", must(conn.Get(ctx, "cached:1").Result()), "c")
	must(r.Expire(ctx, "cached:1", 50*time.Millisecond).Result())
	heard("a deadline", []string{"cached:1"})
	must(0, conn.Close())
	invalidations.Close()
}
