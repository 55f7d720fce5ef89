"""One rate budget for many processes and machines, over Redis or Valkey (extra ``redis``)."""

from momopay.redis.budget import RedisRateBudget
from momopay.redis.connection import RedisClient

__all__ = ["RedisClient", "RedisRateBudget"]
