"""Blocking and async I/O. Only this package uses httpx, anyio and `time.sleep`.

`SyncBackend` and `AsyncBackend` have the same methods: `send`, `sleep`, `now`, `in_thread`, `signal` and `close`. They
call httpx transports or httpcore connections directly, so redirects, cookies, proxies of the environment and httpx's
logging of URLs never apply. Times are in seconds.
"""
