"""Blocking and asynchronous I/O. This is the only package that knows httpx, anyio and `time.sleep`.

`SyncBackend` and `AsyncBackend` have the same methods: `send`, `sleep`, `now`, `in_thread`, `signal` and `close`. They
call httpx transports directly, or drive httpcore's connections, so redirects, cookies, proxies of the environment and
httpx's logging of URLs never apply. Times are in seconds.
"""
