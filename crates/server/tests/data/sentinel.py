# Adds to a counter on whichever server the Sentinels call the master, and reads it from a replica, until it is ended.
# Argument: the ports of the Sentinels.
import sys

import redis
from redis.sentinel import Sentinel

sentinel = Sentinel([("127.0.0.1", int(port)) for port in sys.argv[1:]], socket_timeout=0.5)
master = sentinel.master_for("haypile", socket_timeout=0.5)
replica = sentinel.slave_for("haypile", socket_timeout=0.5)
while True:
    try:
        master.incr("redis-py")
        replica.get("redis-py")
    except redis.RedisError:
        # A failover: the client asks the Sentinels again.
        pass
