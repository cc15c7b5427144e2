// Hashes, lists, sets, sorted sets and SORT, over RESP2 and RESP3.
package main

import (
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/redis/go-redis/v9"
)

func sorted(values []string) []string {
	sort.Strings(values)
	return values
}

func hashes(r *redis.Client, protocol int) {
	check("hset", must(r.HSet(ctx, "h", "a", 1, "b", 2, "c", "x").Result()), int64(3))
	check("hgetall", must(r.HGetAll(ctx, "h").Result()), map[string]string{"a": "1", "b": "2", "c": "x"})
	_, isMap := must(r.Do(ctx, "HGETALL", "h").Result()).(map[interface{}]interface{})
	check("hgetall is a map in RESP3", isMap, protocol == 3)
	check("hmget", must(r.HMGet(ctx, "h", "a", "none").Result()), []interface{}{"1", nil})
	check("hincrby", must(r.HIncrBy(ctx, "h", "a", 9).Result()), int64(10))
	check("hincrbyfloat", must(r.HIncrByFloat(ctx, "h", "a", 0.5).Result()), 10.5)
	check("hsetnx", must(r.HSetNX(ctx, "h", "a", "x").Result()), false)
	check("hkeys", sorted(must(r.HKeys(ctx, "h").Result())), []string{"a", "b", "c"})
	check("hrandfield", len(must(r.HRandFieldWithValues(ctx, "h", 2).Result())), 2)
	check("hdel", must(r.HDel(ctx, "h", "c", "none").Result()), int64(1))
	check("deadlines of fields", must(r.HExpire(ctx, "h", time.Hour, "a", "none").Result()), []int64{1, -2})
	left := must(r.HTTL(ctx, "h", "a", "b", "none").Result())
	check("they are told", []bool{left[0] > 3500, left[1] == -1, left[2] == -2}, []bool{true, true, true})
	check("hpersist", must(r.HPersist(ctx, "h", "a").Result()), []int64{1})
	fails("a wrong type", r.LPush(ctx, "h", "x").Err(), "WRONGTYPE Operation against a key holding the wrong kind of value")
	_, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := 0; i < 2000; i++ {
			p.HSet(ctx, "big", fmt.Sprintf("field:%d", i), i)
		}
		return nil
	})
	must(0, err)
	count := 0
	fields := r.HScan(ctx, "big", 0, "", 100).Iterator()
	for fields.Next(ctx) {
		count++
	}
	check("an iterator over a hash", count, 4000)
}

func lists(r *redis.Client) {
	check("rpush", must(r.RPush(ctx, "l", "a", "b", "c").Result()), int64(3))
	check("lpush", must(r.LPush(ctx, "l", "z").Result()), int64(4))
	check("linsert", must(r.LInsertBefore(ctx, "l", "b", "x").Result()), int64(5))
	check("lset", must(r.LSet(ctx, "l", 0, "y").Result()), "OK")
	check("lindex", must(r.LIndex(ctx, "l", -1).Result()), "c")
	check("lrem", must(r.LRem(ctx, "l", 1, "x").Result()), int64(1))
	check("lrange", must(r.LRange(ctx, "l", 0, -1).Result()), []string{"y", "a", "b", "c"})
	check("lpos", must(r.LPos(ctx, "l", "b", redis.LPosArgs{}).Result()), int64(2))
	check("lmove", must(r.LMove(ctx, "l", "m", "LEFT", "RIGHT").Result()), "y")
	check("lpop", must(r.LPopCount(ctx, "l", 2).Result()), []string{"a", "b"})
	key, popped, err := r.LMPop(ctx, "right", 5, "none", "l").Result()
	check("lmpop", []interface{}{key, popped, err}, []interface{}{"l", []string{"c"}, nil})
	check("lpop of nothing", r.LPop(ctx, "l").Err(), redis.Nil)
	check("lpop of some of nothing", r.LPopCount(ctx, "l", 2).Err(), redis.Nil)
	var many []interface{}
	for i := 0; i < 3000; i++ {
		many = append(many, i)
	}
	must(r.RPush(ctx, "l", many...).Result())
	all := must(r.LRange(ctx, "l", 0, -1).Result())
	check("a long list", []interface{}{len(all), all[2999], must(r.LLen(ctx, "l").Result())}, []interface{}{3000, "2999", int64(3000)})
}

func sets(r *redis.Client) {
	check("sadd", must(r.SAdd(ctx, "s", "a", "b", "c").Result()), int64(3))
	must(r.SAdd(ctx, "s2", "b", "c", "d").Result())
	check("smembers", sorted(must(r.SMembers(ctx, "s").Result())), []string{"a", "b", "c"})
	check("smembers as a map", must(r.SMembersMap(ctx, "s").Result()), map[string]struct{}{"a": {}, "b": {}, "c": {}})
	check("sinter", sorted(must(r.SInter(ctx, "s", "s2").Result())), []string{"b", "c"})
	check("sdiff", must(r.SDiff(ctx, "s", "s2").Result()), []string{"a"})
	check("sunionstore", must(r.SUnionStore(ctx, "s3", "s", "s2").Result()), int64(4))
	check("sintercard", must(r.SInterCard(ctx, 0, "s", "s2").Result()), int64(2))
	check("smismember", must(r.SMIsMember(ctx, "s", "a", "z").Result()), []bool{true, false})
	check("smove", must(r.SMove(ctx, "s", "s2", "a").Result()), true)
	check("srem", must(r.SRem(ctx, "s", "b", "none").Result()), int64(1))
	check("spop", must(r.SPop(ctx, "s").Result()), "c")
	check("spop of nothing", r.SPop(ctx, "s").Err(), redis.Nil)
	check("spop of many", sorted(must(r.SPopN(ctx, "s3", 9).Result())), []string{"a", "b", "c", "d"})
}

func sortedSets(r *redis.Client, protocol int) {
	members := []redis.Z{{Score: 1, Member: "a"}, {Score: 2.5, Member: "b"}, {Score: 3, Member: "c"}}
	check("zadd", must(r.ZAdd(ctx, "z", members...).Result()), int64(3))
	check("zrange", must(r.ZRangeWithScores(ctx, "z", 0, -1).Result()), members)
	check("zscore", must(r.ZScore(ctx, "z", "b").Result()), 2.5)
	_, isNumber := must(r.Do(ctx, "ZSCORE", "z", "b").Result()).(float64)
	check("scores are numbers in RESP3", isNumber, protocol == 3)
	check("zscore of nothing", r.ZScore(ctx, "z", "none").Err(), redis.Nil)
	check("zincrby", must(r.ZIncrBy(ctx, "z", 0.25, "b").Result()), 2.75)
	check("by score", must(r.ZRangeByScore(ctx, "z", &redis.ZRangeBy{Min: "(1", Max: "+inf"}).Result()), []string{"b", "c"})
	rank := must(r.ZRankWithScore(ctx, "z", "b").Result())
	check("zrank with its score", []interface{}{rank.Rank, rank.Score}, []interface{}{int64(1), 2.75})
	check("zrank of nothing", r.ZRank(ctx, "z", "none").Err(), redis.Nil)
	check("zcount", must(r.ZCount(ctx, "z", "2", "3").Result()), int64(2))
	check("infinity", must(r.ZAdd(ctx, "z", redis.Z{Score: math.Inf(1), Member: "far"}).Result()), int64(1))
	check("zpopmax", must(r.ZPopMax(ctx, "z").Result()), []redis.Z{{Score: math.Inf(1), Member: "far"}})
	check("zpopmin", must(r.ZPopMin(ctx, "z", 2).Result()), []redis.Z{{Score: 1, Member: "a"}, {Score: 2.75, Member: "b"}})
	must(r.ZAdd(ctx, "y", redis.Z{Score: 4, Member: "c"}, redis.Z{Score: 5, Member: "e"}).Result())
	union := must(r.ZUnionWithScores(ctx, redis.ZStore{Keys: []string{"z", "y"}}).Result())
	check("zunion", union, []redis.Z{{Score: 5, Member: "e"}, {Score: 7, Member: "c"}})
	store := redis.ZStore{Keys: []string{"z", "y"}, Weights: []float64{2, 1}}
	check("zinterstore", must(r.ZInterStore(ctx, "x", &store).Result()), int64(1))
	check("zremrangebyrank", must(r.ZRemRangeByRank(ctx, "y", 0, 0).Result()), int64(1))
	key, popped, err := r.ZMPop(ctx, "min", 5, "none", "y").Result()
	check("zmpop", []interface{}{key, popped, err}, []interface{}{"y", []redis.Z{{Score: 5, Member: "e"}}, nil})
}

func sorting(r *redis.Client) {
	must(r.RPush(ctx, "ids", 3, 1, 2).Result())
	must(r.MSet(ctx, "weight:1", 30, "weight:2", 20, "weight:3", 10, "name:1", "one", "name:2", "two", "name:3", "three").Result())
	check("sort", must(r.Sort(ctx, "ids", &redis.Sort{Order: "DESC"}).Result()), []string{"3", "2", "1"})
	by := redis.Sort{By: "weight:*", Get: []string{"#", "name:*"}}
	check("sort by, get", must(r.Sort(ctx, "ids", &by).Result()), []string{"3", "three", "2", "two", "1", "one"})
	check("sort store", must(r.SortStore(ctx, "ids", "in order", &redis.Sort{}).Result()), int64(3))
	check("in its place", must(r.LRange(ctx, "in order", 0, -1).Result()), []string{"1", "2", "3"})
}
