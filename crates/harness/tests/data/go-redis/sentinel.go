package main

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// follow adds to a counter on whichever server the Sentinels call the master, and reads it from a replica, until it is
// ended. The ports are those of the Sentinels.
func follow(ports []string) {
	var addresses []string
	for _, port := range ports {
		addresses = append(addresses, "127.0.0.1:"+port)
	}
	options := redis.FailoverOptions{
		MasterName:    "haypile",
		SentinelAddrs: addresses,
		DialTimeout:   500 * time.Millisecond,
		ReadTimeout:   500 * time.Millisecond,
		WriteTimeout:  500 * time.Millisecond,
	}
	ofReplicas := options
	ofReplicas.ReplicaOnly = true
	master, replica := redis.NewFailoverClient(&options), redis.NewFailoverClient(&ofReplicas)
	ctx := context.Background()
	for {
		// An error is a failover: the client asks the Sentinels again.
		if err := master.Incr(ctx, "go-redis").Err(); err != nil {
			time.Sleep(10 * time.Millisecond)
		}
		_ = replica.Get(ctx, "go-redis").Err()
	}
}
