"""Lazy parts of a client: they are made at their first use, so that building a client imports nothing that sends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, TypeVar

from momopay._fork import renew_in_child
from momopay._locks import SafeLock
from momopay.errors import ConfigurationError

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend

T = TypeVar("T")
BackendT = TypeVar("BackendT", "SyncBackend", "AsyncBackend")
"""The backend, by which type checkers tell a blocking client's parts from an async one's."""


def load(path: str) -> Any:
    """Return a name of a module of this package, such as ``"_core.session.Session"``."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"momopay.{module}"), name)


class Once(Generic[T]):
    """A value that is made once, at its first use. Safe to use from many threads."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.made: T | None = None
        self._renew()
        renew_in_child(self._renew)

    def _renew(self) -> None:
        self._lock = SafeLock()

    def get(self) -> T:
        if self.made is not None:
            return self.made
        with self._lock:
            if self.made is None:
                self.made = self._make()
            return self.made


def once(path: str, *arguments: object) -> Once[Any]:
    """Return a `Once` that imports a class of this package and calls it with these arguments."""
    return Once(lambda: load(path)(*arguments))


NO_JOURNAL: Any = object()
"""In place of a client's journal: none, whatever the environment says. For programs that name the journal otherwise."""


class ClientJournal(Once[Any]):
    """The journal of a client and its copies: the user's own, or one that is opened from a URL at the first use."""

    @classmethod
    def of(cls, given: object) -> ClientJournal | None:
        """Return the journal that a client was given, or else the one that MOMOPAY_JOURNAL names, or None."""
        if given is None:
            named = os.environ.get("MOMOPAY_JOURNAL")  # scripts unset a variable by setting it to nothing
            given = load("_core.journal_url.url_of")(named) if named else NO_JOURNAL
        return None if given is NO_JOURNAL else cls(given)

    def __init__(self, given: object) -> None:
        if isinstance(given, str | os.PathLike):  # refused now, and not when the first customer pays
            load("_core.journal_url.check_url")(given)
        elif not isinstance(given, load("journal.Journal")):
            raise ConfigurationError('journal must be a Journal or its URL, such as "sqlite:///payments.db"')
        super().__init__(self._open)
        self._given: Any = given
        self._is_closed = False
        self.url: str = given if isinstance(given, str) else ""

    def _open(self) -> object:
        if self._is_closed:
            raise ConfigurationError("this client is closed; make another. Nothing was sent")
        return load("journal.Journal")(self._given) if isinstance(self._given, str) else self._given

    def close(self) -> None:
        """Close the journal if it was opened here. The user's own stays open."""
        if isinstance(self._given, str):
            self._is_closed = True
            if self.made is not None:
                self.made.close()


_DURABLE: Final = frozenset({"collect_once", "pay_once", "refund", "release", "sweep", "receive", "reconcile"})
_LIBRARIES: Final = {  # what a journal loads when it is opened, by the beginning of its URL
    "sqlite": ("momopay.journal.sqlite", "sqlalchemy.dialects.sqlite.pysqlite"),
    "postgresql": ("momopay.journal.postgresql", "sqlalchemy.dialects.postgresql.psycopg"),
}
_OF_ANY_JOURNAL: Final = ("momopay.journal.delivery", "momopay.journal.queue")


class UnloadedResource:
    """A group of an async client's operations before its code is imported. Its durable calls import it in a thread."""

    @classmethod
    def unless_loaded(cls, path: str, get: Callable[[], Any], client: Any) -> Any:
        """Return a client's group by its path, which `get` returns, or a stand-in if its code is not imported yet."""
        module = f"momopay.resources.{path.partition('.')[0]}"
        # A class has operations, too, and no journal.
        journal: ClientJournal | None = getattr(client, "_journal", None)
        return get() if module in sys.modules else cls(module, get, "" if journal is None else journal.url)

    def __init__(self, module: str, get: Callable[[], Any], url: str) -> None:
        self._get = get
        self._modules = [module, "momopay._core.session", "momopay._transport.async_backend"]
        for scheme, names in _LIBRARIES.items():
            self._modules += (*names, *_OF_ANY_JOURNAL) if url.startswith(scheme) else ()

    def __getattr__(self, name: str) -> Any:
        return partial(self._call, name) if name in _DURABLE else getattr(self._get(), name)

    async def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        try:
            await _in_thread(self._import)
            coroutine = getattr(self._get(), name)(*args, **kwargs)
        finally:
            del args, kwargs  # a crash reporter shows the locals of a frame that raises
        return await coroutine

    def _import(self) -> None:
        for each in self._modules:
            with suppress(ModuleNotFoundError):  # the call says which extra is missing
                import_module(each)


async def _in_thread(work: Callable[[], None]) -> None:
    # Without anyio, which would have to be imported.
    trio: Any = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        await trio.to_thread.run_sync(work)
        return
    asyncio: Any = sys.modules.get("asyncio")
    with suppress(RuntimeError):  # no loop runs: the call says so
        await asyncio.get_running_loop().run_in_executor(None, work)


class ClassResource(property):
    """A property that the class has, too, where `create_autospec(Client)` looks for operations."""

    def __get__(self, client: Any, kind: Any = None, /) -> Any:
        if client is None:  # a client whose operations have their signatures and cannot be called
            client = object.__new__(kind)
            client._session = _NoSession(is_async=hasattr(kind, "aclose"))
            client._poll_loops = once("_polling.wait.PollLoops")
        return super().__get__(client, kind)


class _NoSession:
    def __init__(self, *, is_async: bool) -> None:
        self.backend = SimpleNamespace(is_async=is_async)

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError("make a client first: operations belong to it, and not to its class")
