"""One rate budget for many processes and machines, over Redis or Valkey (extra ``redis``).

The library is loaded when a budget is made, not when this room is.
"""

from momopay.redis.budget import RedisRateBudget

__all__ = ["RedisRateBudget"]
