"""Publish one coroutine both as a blocking method of `Client` and as an awaitable method of `AsyncClient`.

Every endpoint is written once, as ``async def``. The coroutines of a blocking client never suspend, because its
backend blocks instead, so one ``send(None)`` runs them to completion. The client's type decides which form a caller
gets, never whether an event loop is running.

Inside the library, await private coroutines; never call an operation from another one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from copy import copy
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from momopay._core.session import Session
from momopay._core.wiring import BackendT
from momopay._hints import explain, missing_attribute
from momopay._redaction import clear_frames
from momopay._transport.attempt import run_blocking

if TYPE_CHECKING:  # a blocking client must not load the other backend, and asyncio with it
    from momopay._transport.async_backend import AsyncBackend
    from momopay._transport.sync_backend import SyncBackend
else:  # for `typing.get_type_hints`
    AsyncBackend = SyncBackend = Any

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Resource(Generic[BackendT]):
    """A group of operations that share one session."""

    _session: Session[BackendT]

    def __init__(self, session: Session[BackendT]) -> None:
        self._session = session

    def _begin(self, method: Callable[..., Coroutine[Any, Any, T]], args: Any, kwargs: Any) -> Coroutine[Any, Any, T]:
        """Return the coroutine of a call, with its events if the client has an observer."""
        if self._session.observer is None:
            return method(self, *args, **kwargs)

        def work(of_call: Session[Any]) -> Coroutine[Any, Any, T]:
            resource = copy(self)
            vars(resource)["_session"] = of_call
            return method(resource, *args, **kwargs)

        # Public: events, spans and logs carry this name.
        name = f"{type(self).__name__.lower()}.{method.__name__}"
        return _observed(self._session, name, work, kwargs.get("reference", kwargs.get("account_reference")))


# Called only for names that do not exist. Set here and not in the class, where checkers and editors would take every
# name for one that does.
setattr(Resource, "__getattr__", missing_attribute)  # noqa: B010


def as_operation(
    session: Session[Any],
    name: str,
    work: Callable[Concatenate[Session[Any], P], Coroutine[Any, Any, T]],
    reference: object = None,
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Coroutine[Any, Any, T]:
    """Return the coroutine of ``work(session, ...)``, with the events of an operation if the client has an observer.

    The steps of iterables use this. Methods that are decorated with `operation` do not need it.
    """
    if session.observer is None:
        return work(session, *args, **kwargs)
    return _observed(session, name, lambda of_call: work(of_call, *args, **kwargs), reference)


async def _observed(
    session: Session[Any], name: str, work: Callable[[Session[Any]], Coroutine[Any, Any, T]], reference: object
) -> T:
    """Do the work with a copy of the session for this call, and report its start and its end."""
    assert session.observer is not None  # noqa: S101  the callers checked
    call = session.observer.start(name, session.backend.now, reference)
    of_call = copy(session)
    of_call.events = call
    coroutine = work(of_call)
    del work, reference  # this frame is still running when the end is reported, and must not show the arguments
    try:
        call.call_started()
    except BaseException:
        coroutine.close()
        raise
    try:
        result = await coroutine
    except BaseException as error:
        clear_frames(error)  # before the observer, which may log the error that is being handled
        call.call_ended(error, None)
        raise
    call.call_ended(None, result)
    return result


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result. Errors keep no arguments in their frames."""
    try:
        return run_blocking(coroutine)
    except BaseException as error:
        clear_frames(error)
        raise


async def run_async(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine and return its result. Errors keep no arguments in their frames."""
    try:
        return await coroutine
    except BaseException as error:
        clear_frames(error)
        raise


def operation(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Operation[T, P]:
    """Decorate a coroutine method of a resource: blocking on a `Client`, awaitable on an `AsyncClient`."""
    # A function, because Jedi infers the type of a result through a function's return type, and not through a class.
    return Operation(method)


class _NoOwner:
    """Never used. Jedi infers the awaited result from the overload that names it."""


class Operation(Generic[T, P]):
    """The descriptor that `operation` puts in the place of the method."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        # Both forms delete their arguments before the call runs. Their own frames are still running when an error
        # passes through them, so the phone number could not be cleared from them later.
        def blocking(self: Resource[SyncBackend], /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                try:
                    coroutine = self._begin(method, args, kwargs)  # pyright: ignore[reportPrivateUsage]  no user's
                finally:
                    del args, kwargs
                return run_blocking(coroutine)
            except BaseException as error:
                explain(error, method)
                clear_frames(error)
                raise

        async def awaitable(self: Resource[AsyncBackend], /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                try:
                    self._session.backend.bind_to_loop()  # pyright: ignore[reportPrivateUsage]  as above
                    coroutine = self._begin(method, args, kwargs)  # pyright: ignore[reportPrivateUsage]  as above
                finally:
                    del args, kwargs
                return await coroutine
            except BaseException as error:
                explain(error, method)
                clear_frames(error)
                raise

        self.__doc__: str | None = method.__doc__
        self.__name__: str = method.__name__
        self.__annotations__: dict[str, Any] = method.__annotations__  # for `typing.get_type_hints`
        self.__wrapped__: Callable[..., Coroutine[Any, Any, T]] = method
        self._blocking = update_wrapper(blocking, method)
        self._awaitable = update_wrapper(awaitable, method)

    @overload
    def __get__(self, owner: None, owner_type: type) -> Self: ...
    @overload
    def __get__(self, owner: Resource[SyncBackend], owner_type: type | None = None) -> Callable[P, T]: ...
    # Not `Coroutine[Any, Any, T]`: with Any in it, mypy takes the result of `asyncio.gather` of two operations for Any.
    @overload
    def __get__(
        self, owner: Resource[AsyncBackend], owner_type: type | None = None
    ) -> Callable[P, Coroutine[object, None, T]]: ...
    @overload
    def __get__(self, owner: _NoOwner, owner_type: type | None = None) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, owner: Any, owner_type: type | None = None) -> Any:
        if owner is None:
            return self
        is_async = owner._session.backend.is_async  # noqa: SLF001
        return MethodType(self._awaitable if is_async else self._blocking, owner)


def _call(self: Operation[Any, Any], owner: Resource[Any], /, *args: Any, **kwargs: Any) -> Any:
    bound: Any = self.__get__(owner)
    return bound(*args, **kwargs)


# `help` and `inspect.signature` show the signature only of a callable. Set here and not in the class, where Jedi would
# find it and show its signature for every operation.
setattr(Operation, "__call__", _call)  # noqa: B010


class Steps(Protocol[T_co]):
    """The state of one loop over an iterable."""

    async def next(self) -> Sequence[T_co] | None:
        """Return the next items, such as those of a page, or None at the end."""


class OperationIterator(Generic[BackendT, T]):
    """An iterable. Use ``for`` if it is from a `Client`, and ``async for`` if it is from an `AsyncClient`.

    Each loop calls `begin` and gets its items from the `Steps` that it returns.
    """

    _session: Session[BackendT]

    def __init__(self, session: Session[Any], begin: Callable[[], Steps[T]]) -> None:
        self._session = session
        self._begin = begin

    def __iter__(self: OperationIterator[SyncBackend, T]) -> Iterator[T]:
        if self._session.backend.is_async:
            raise TypeError("this comes from an AsyncClient: iterate over it with `async for`, not with `for`")
        return _items(self._begin)

    def __aiter__(self: OperationIterator[AsyncBackend, T]) -> AsyncIterator[T]:
        if not self._session.backend.is_async:
            raise TypeError("this comes from a blocking Client: iterate over it with `for`, not with `async for`")
        self._session.backend.bind_to_loop()
        return _AsyncLoop(self._begin())


def _items(begin: Callable[[], Steps[T]]) -> Iterator[T]:
    steps = begin()
    while (items := run_sync(steps.next())) is not None:
        yield from items


class _AsyncLoop(Generic[T]):
    # A class and not a generator: trio warns about an async generator that a `break` leaves unfinished.

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._items: Iterator[T] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while True:
            for item in self._items:
                return item
            items = await run_async(self._steps.next())
            if items is None:
                raise StopAsyncIteration
            self._items = iter(items)
