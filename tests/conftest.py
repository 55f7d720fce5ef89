"""Every behaviour is tested over both clients: `drive(...)` makes one of the test's kind and runs calls on it."""

import gc
import logging
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import chromium
import pytest
from hypothesis import settings
from sqlalchemy import Connection, Engine, event

from drivers import PROFILE, Driver, unique_key
from memory import in_memory
from momopay import Journal, JournalEntry
from momopay.sandbox import Account, Sandbox
from postgresql import PostgresqlServer, running_postgresql
from sandbox.kit import Receiver
from windows.skips import reason_to_skip

TESTS = Path(__file__).parent
WHOLE = (
    "benchmarks",
    "docs/test_connections.py",
    "docs/test_pages.py",
    "docs/test_site.py",
    "examples",
    "hostile",
    "sandbox/test_page.py",
    "scale",
    "transport/test_late_arrival.py",
    "typing",
)
"""What takes its time, and runs where the marker `whole` is asked for."""


class SharedStatements(dict[Any, Any]):
    """Compiled statements of every journal of a run. By default each engine compiles its own, a fifth of the time."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), compiled)  # SQLAlchemy's key begins with the engine's dialect


STATEMENTS = SharedStatements()


@event.listens_for(Engine, "engine_connect")
def _share_statements(connection: Connection) -> None:
    connection.execution_options(compiled_cache=STATEMENTS)


def pytest_configure() -> None:
    """Make every run draw the same examples, and start programs as a user's shell does.

    Programs receive Ctrl-C, which a shell's background job does not, and they keep what Python compiled. An example may
    take any time: a bound would fail on a busy machine.
    """
    settings.register_profile("momopay", derandomize=True, deadline=None, max_examples=50)
    settings.load_profile("momopay")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # As the pytest plugin does for users. What a live key does is tested without it.
    os.environ["MOMOPAY_TEST_RUN"] = "1"
    _keep_files_in_memory()
    gc.disable()  # until all is collected: there is no garbage before


def _keep_files_in_memory() -> None:
    """Make each `tmp_path` in memory, where there is room."""
    if (memory := in_memory()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many processes `-n auto` starts: one more than there are cores, since some tests wait.

    Each takes tests from those that have most left, so that none works long after the others have ended.
    """
    if config.option.dist == "no":  # nothing else was asked for
        config.option.dist = "worksteal"
    return 1 + (os.cpu_count() or 1)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file whose tests would all be left out; some of them load what takes longer than the tests."""
    is_left_out = "not whole" in config.option.markexpr and any(collection_path == TESTS / place for place in WHOLE)
    return True if is_left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (_is_whole(item.path) or _repeats_on_postgresql(item)) and not item.get_closest_marker("campaign"):
            item.add_marker("whole")
        if sys.platform == "win32" and (reason := reason_to_skip(item.nodeid)):
            item.add_marker(pytest.mark.skip(reason=reason))
    _take_clients_in_turn(items)
    _take_shops_in_turn(items)
    if PROFILE is not None:  # only where it is what the test's sandbox plays
        items[:] = [
            item
            for item in items
            if isinstance(item, pytest.Function)
            and ({"still_sandbox", "examples_sandbox"} & {*item.fixturenames} or "plain_command" in item.name)
        ]


def _take_clients_in_turn(items: list[pytest.Item]) -> None:
    """Leave to `whole` every second of a table's tests over both clients, which share the code of journal and calls."""
    tables: dict[tuple[Path, str], dict[str, dict[str, pytest.Item]]] = {}
    for item in items:
        values: Any = getattr(item, "callspec", None)
        if values is None or "client_kind" not in values.params or item.path.parent.name not in {"durable", "journal"}:
            continue
        kind = values.params["client_kind"]
        table = tables.setdefault((item.path, item.name.partition("[")[0]), {})
        table.setdefault(values.id.replace(kind, ""), {})[kind] = item
    for table in tables.values():
        of_both = [each for each in table.values() if len(each) > 1]
        for number, each in enumerate(of_both[1:]):
            each["blocking" if number % 2 == 0 else "async"].add_marker("whole")


def _take_shops_in_turn(items: list[pytest.Item]) -> None:
    """Leave to `whole` two thirds of the frameworks of each test of the views, others for each test."""
    tables: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        values: Any = getattr(item, "callspec", None)
        if item.path.parent == TESTS / "integrations" and values is not None and "shop" in values.params:
            tables.setdefault((item.path, item.name.partition("[")[0]), []).append(item)
    for number, table in enumerate(tables.values()):
        for place, item in enumerate(table):
            if len(table) > 3 and (place + number) % 3:
                item.add_marker("whole")


@cache  # asked for each of thousands of tests
def _is_whole(path: Path) -> bool:
    return any(path.is_relative_to(TESTS / place) for place in WHOLE)


def _repeats_on_postgresql(item: pytest.Item) -> bool:
    """Return whether this is a test of the journal that PostgreSQL repeats, with the same statements."""
    if item.path.parent != TESTS / "journal" or item.get_closest_marker("both_databases"):
        return False
    values: Any = getattr(item, "callspec", None)  # of a test with parameters
    return values is not None and values.params.get("url") == "postgresql"


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Explain by which fields two entries of a journal differ: their reprs look alike, and fill three lines each."""
    if op != "==" or not isinstance(left, JournalEntry) or not isinstance(right, JournalEntry):
        return None
    both = {name: (getattr(left, name), getattr(right, name)) for name in JournalEntry.model_fields}
    differing = [f"{name}: {one!r} != {other!r}" for name, (one, other) in both.items() if one != other]
    return [f"two entries of {left.kind} {left.reference!r} differ", *differing]


def pytest_collection_finish() -> None:
    """Keep the garbage collector from searching the thousands of collected tests again and again."""
    if sys.version_info < (3, 14):  # whose collections hypothesis times, and which it then finds inconsistent
        gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _heard() -> None:
    """Let each test hear the package's log, whatever a framework's logging set-up did to it before."""
    logger = logging.getLogger("momopay")
    logger.disabled, logger.propagate = False, True
    logger.setLevel(logging.NOTSET)
    logging.disable(logging.NOTSET)


@pytest.fixture(params=["blocking", "async"])
def client_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def drive(client_kind: str) -> Iterator[Callable[..., Driver]]:
    drivers: list[Driver] = []

    def make(**options: Any) -> Driver:
        drivers.append(Driver(client_kind, **options))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture
def live_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow live keys, as outside a test run."""
    monkeypatch.delenv("MOMOPAY_TEST_RUN")


@pytest.fixture
def backoff(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Say how long every pause before a repeat is drawn, in seconds."""

    def draw(seconds: float) -> None:
        def uniform(_low: float, _high: float) -> float:
            return seconds

        monkeypatch.setattr("random.uniform", uniform)

    return draw


@pytest.fixture
def no_backoff(backoff: Callable[[float], None]) -> None:
    backoff(0.0)


@pytest.fixture(scope="module")
def still_sandbox() -> Iterator[Sandbox]:
    with Sandbox(speed=0, profile=PROFILE) as sandbox:
        yield sandbox


@pytest.fixture
def sandbox(still_sandbox: Sandbox) -> Sandbox:
    """A sandbox in which nothing happened yet; its time stands still between calls."""
    still_sandbox.reset()
    return still_sandbox


@pytest.fixture
def key() -> str:
    return unique_key()


@pytest.fixture
def account(sandbox: Sandbox, key: str) -> Account:
    return sandbox.account(key)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="session")
def postgresql() -> Generator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that nobody used yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'payouts.db'}"
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return server.new_schema()


@pytest.fixture
def journal(url: str) -> Generator[Journal]:
    with Journal(url) as journal:
        yield journal


@pytest.fixture(scope="session")
def browser() -> Iterator[chromium.Tab]:
    program = chromium.find()
    if program is None:
        if os.environ.get("CI_REQUIRE_ALL") == "1":
            pytest.fail("chromium is required here, and it is missing")
        pytest.skip(f"needs chromium, which this {platform.system()} lacks (Debian: chromium)")
    with chromium.tab(program) as tab:
        yield tab


@pytest.fixture
def tab(browser: chromium.Tab) -> chromium.Tab:
    """A tab of headless Chromium, without what an earlier test left."""
    browser.open("about:blank")
    browser.requested.clear()
    browser.faults.clear()
    return browser


@pytest.fixture
def in_nairobi() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as machine:
        machine.setenv("TZ", "Africa/Nairobi")
        if sys.platform == "win32":
            pytest.skip("Windows has no time.tzset")
        time.tzset()
        yield
    time.tzset()
