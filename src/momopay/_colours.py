"""One coroutine, two colours: a plain method on `Client`, an awaitable one on `AsyncClient`.

A coroutine over the blocking port never suspends, so one step finishes it. The colour comes from the
client's type, never from whether a loop is running.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from momopay._discretion import forget

if TYPE_CHECKING:
    from momopay._io.blocking import BlockingIO
    from momopay._io.suspending import AsyncIO
    from momopay._session import Session

IO = TypeVar("IO", "BlockingIO", "AsyncIO")
P = ParamSpec("P")
T = TypeVar("T")


class Resource(Generic[IO]):
    """A group of operations over one session."""

    _session: Session[IO]

    def __init__(self, session: Session[IO]) -> None:
        self._session = session

    @property
    def suspends(self) -> bool:
        """Whether its operations are to be awaited."""
        return self._session.io.suspends


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, to its end."""
    try:
        work.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    except BaseException as error:
        forget(error)
        raise
    work.close()
    raise RuntimeError("a blocking call tried to suspend")


async def carry(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine on behalf of a user."""
    try:
        return await work
    except BaseException as error:
        forget(error)
        raise


class operation(Generic[P, T]):  # noqa: N801  it reads as a decorator
    """Publish one coroutine method in the colour of its client."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        def blocking(owner: Resource[BlockingIO], /, *args: P.args, **kwargs: P.kwargs) -> T:
            work = method(owner, *args, **kwargs)
            del args, kwargs
            return finish(work)

        async def suspending(owner: Resource[AsyncIO], /, *args: P.args, **kwargs: P.kwargs) -> T:
            work = method(owner, *args, **kwargs)
            del args, kwargs
            return await carry(work)

        self.__doc__: str | None = method.__doc__
        self.__name__: str = method.__name__
        self.__wrapped__: Callable[..., Coroutine[Any, Any, T]] = method
        self._blocking = update_wrapper(blocking, method)
        self._suspending = update_wrapper(suspending, method)

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: Resource[BlockingIO], kind: type | None = None) -> Callable[P, T]: ...
    @overload
    def __get__(self, owner: Resource[AsyncIO], kind: type | None = None) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, owner: Resource[Any] | None, kind: type | None = None) -> Any:
        if owner is None:
            return self
        return MethodType(self._suspending if owner.suspends else self._blocking, owner)
