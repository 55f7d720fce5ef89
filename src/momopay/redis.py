"""One rate budget for many processes and machines, over Redis or Valkey (extra ``redis``)."""

from momopay._ratelimit.redis_budget import RedisClient, RedisRateBudget

__all__ = ["RedisClient", "RedisRateBudget"]
