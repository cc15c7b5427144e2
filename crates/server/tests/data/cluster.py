"""A client of a Redis Cluster, given one member of a group and the process that leads it."""

import os
import signal
import sys
import time

from redis.cluster import RedisCluster
from redis.exceptions import ClusterDownError, ConnectionError, RedisClusterException, TimeoutError

PORT, LEADER = int(sys.argv[1]), int(sys.argv[2])
PATIENCE_S = 30

cluster = RedisCluster(host="127.0.0.1", port=PORT)
assert len(cluster.get_primaries()) == 1 and len(cluster.get_replicas()) == 2, cluster.get_nodes()
for number in range(100):
    cluster.set(f"key:{number}", number)
assert cluster.get("key:99") == b"99"
assert cluster.dbsize() == 100
assert cluster.cluster_keyslot("foo") == 12182
assert cluster.cluster_countkeysinslot(cluster.keyslot("key:1")) == 1
pipeline = cluster.pipeline()
for number in range(100):
    pipeline.incr(f"key:{number}")
assert pipeline.execute() == list(range(1, 101))

readers = RedisCluster(host="127.0.0.1", port=PORT, read_from_replicas=True)
until = time.time() + PATIENCE_S
while [readers.get("key:7") for _ in range(9)] != [b"8"] * 9:
    assert time.time() < until, "the replicas do not catch up"
    time.sleep(0.01)

os.kill(LEADER, signal.SIGKILL)
until = time.time() + PATIENCE_S
while True:
    try:
        cluster.set("key:0", "after")
        break
    except (ClusterDownError, ConnectionError, TimeoutError):
        pass
    except (KeyError, RedisClusterException):
        # redis-py 4.3 cannot connect again to a node that it has given up, and begins anew with one that is there.
        try:
            cluster = RedisCluster(host="127.0.0.1", port=PORT)
        except (ConnectionError, RedisClusterException, TimeoutError):
            pass
    assert time.time() < until, "nobody leads"
    time.sleep(0.05)
assert cluster.get("key:0") == b"after"
assert cluster.get("key:99") == b"100"
print("all good")
