"""`client` and `async_client`: signed, with the project's journal, beside the project's own transactions."""

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import override_settings
from sqlalchemy import URL

import momopay
from integrations.django.conftest import ALIAS, ORDER, Project, collect, database
from journal.database_kit import in_threads
from momopay import ConfigurationError, Journal, JournalError, PayoutItem, RequestValidationError
from momopay.integrations.django import async_client, client, clients
from momopay.integrations.django.apps import _close_files
from momopay.integrations.django.models import create_tables

both_databases = pytest.mark.parametrize("engine", ["sqlite", "postgresql"], indirect=True)


def test_the_client_is_one_and_looks_like_one(project: Project) -> None:
    assert isinstance(client, momopay.Client)
    assert isinstance(async_client, momopay.AsyncClient)
    assert collect().is_new
    assert not collect().is_new
    assert client.journal is client.with_options(timeout=3).journal
    assert client.journal is not None
    assert client.journal.get("INV-1") is not None
    for setting in ("MOMOPAY", "DATABASES", "SECRET_KEY"):
        before = client.journal
        clients.forget_clients(setting=setting)
        assert client.journal is not before


@both_databases
def test_threads_that_use_the_client_first_at_once_get_one(project: Project) -> None:
    clients.forget_clients(setting="MOMOPAY")
    used = in_threads(8, lambda: (clients.the_client(), client.journal))
    assert len({id(each) for each in used[0]}) == 2
    assert set(used) == {used[0]}


def test_every_kind_of_call_signs_its_url(project: Project) -> None:
    collect()
    client.stk.initiate(amount=5, phone="0712345678", account_reference="METER-1")
    client.payouts.initiate(amount=50, phone="0712345678", reference="SAL-0")
    client.payouts.pay_once(reference="SAL-1", amount=50, phone="0712345678")
    project.sandbox.advance(60)
    client.payouts.refund(of="INV-1", amount=10)
    client.with_options(timeout=5).payouts.refund(of="INV-1", amount=20, reference="BACK-2")
    client.stk.initiate(amount=5, phone="0712345678")  # a token needs a reference
    project.sandbox.advance(60)
    urls = {callback.url for callback in project.sandbox.callbacks}
    signed = {clients.signer().verify(url) for url in urls}
    assert signed == {"INV-1", "METER-1", "SAL-0", "SAL-1", "INV-1-R1", "BACK-2"}
    own = "http://127.0.0.1:1/elsewhere"
    with override_settings(SECRET_KEY_FALLBACKS=["y" * 50]):
        assert clients.signer().verify(momopay.CallbackSigner("y" * 50).url(own, reference="OLD")) == "OLD"
    collect(reference="INV-2", callback_url=own)
    project.sandbox.advance(60)
    assert project.sandbox.callbacks[-1].url == own


def test_a_payroll_signs_each_url_as_it_is_read(project: Project) -> None:
    read, own = list[str](), "http://127.0.0.1:1/elsewhere"

    def payroll(prefix: str) -> Iterator[Any]:
        for number, wrap in enumerate((dict, PayoutItem)):
            read.append(f"{prefix}-{number}")
            yield wrap(reference=read[-1], amount=50, phone="0712345678")
        yield {"reference": f"{prefix}-2", "amount": 50}  # refused, as without the app
        yield {"reference": f"{prefix}-3", "amount": 50, "phone": "0712345678", "callback_url": own}

    async def pay(payouts: Any) -> list[Any]:
        return [each async for each in async_client.payouts.pay_all(payouts)]

    async def later(payouts: Iterator[Any]) -> AsyncIterator[Any]:
        for each in payouts:
            yield each

    outcomes = iter(client.payouts.pay_all(payroll("A")))
    assert (next(outcomes).state, read) == ("ACCEPTED", ["A-0"])
    rest = [*outcomes, *asyncio.run(pay(payroll("B"))), *asyncio.run(pay(later(payroll("C"))))]
    assert [each.reference for each in rest if isinstance(each.error, RequestValidationError)] == ["A-2", "B-2", "C-2"]
    with pytest.raises(RequestValidationError, match="iterable"):
        client.payouts.pay_all("D")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    project.sandbox.advance(60)
    urls = {callback.url for callback in project.sandbox.callbacks}
    assert own in urls
    assert {clients.signer().verify(url) for url in urls - {own}} == set(read)


def test_async_views_share_the_journal_and_each_loop_has_a_client(project: Project) -> None:
    collect()

    async def view() -> bool:
        return (await async_client.stk.collect_once(**ORDER)).is_new

    assert [asyncio.run(view()), asyncio.run(view())] == [False, False]
    assert not clients._async_clients  # each was closed with its loop
    with pytest.raises(RuntimeError, match="no running event loop"):
        async_client.wallet  # noqa: B018
    assert project.prompts() == 1


@both_databases
def test_a_rollback_of_the_shop_forgets_no_payment(project: Project) -> None:
    with transaction.atomic(using=ALIAS), project.database.cursor() as cursor:
        if project.database.vendor == "postgresql":  # SQLite cannot write beside a transaction that has written
            cursor.execute("CREATE TABLE orders (reference TEXT)")
        collect()
        transaction.set_rollback(True, using=ALIAS)
    assert "orders" not in project.database.introspection.table_names()
    assert not collect().is_new
    assert project.prompts() == 1


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]


@both_databases
def test_a_payment_in_a_transaction_that_may_roll_back_is_warned_of_once(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    collect()
    with transaction.atomic(using=ALIAS):
        transaction.on_commit(lambda: collect(reference="INV-2"), using=ALIAS)
    assert warnings(caplog) == []  # control: outside, and after the commit
    with transaction.atomic(using=ALIAS):
        project.sweep()
        assert warnings(caplog) == []  # these write nothing about an order
        with transaction.atomic(using=ALIAS):
            collect(reference="INV-3")
        collect(reference="INV-4")
    (said,) = warnings(caplog)
    assert ("'INV-3'" in said, f"database {ALIAS!r}" in said, "non_atomic_requests" in said) == (True, True, True)
    for pay in (
        lambda: client.payouts.pay_once(reference="SAL-1", amount=50, phone="0712345678"),
        lambda: client.payouts.refund(of="INV-1", amount=10),
        lambda: list(client.payouts.pay_all([{"reference": "SAL-2", "amount": 50, "phone": "0712345678"}])),
    ):
        project.sandbox.advance(60)
        clients._warnings.clear()
        caplog.clear()
        with transaction.atomic(using=ALIAS):
            pay()
        assert len([each for each in warnings(caplog) if "open transaction" in each]) == 1


def test_a_connection_without_autocommit_is_an_open_transaction(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.database.ensure_connection()
    transaction.set_autocommit(False, using=ALIAS)
    try:
        collect()
    finally:
        transaction.rollback(using=ALIAS)
        transaction.set_autocommit(True, using=ALIAS)
    assert len(warnings(caplog)) == 1


def test_sqlite_refuses_soon_beside_a_writing_transaction(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "TIMEOUT", 0.2)
    with project.database.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (reference TEXT)")

    @contextmanager
    def locked() -> Generator[None]:
        with transaction.atomic(using=ALIAS), project.database.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES ('INV-1')")
            yield

    begun = time.monotonic()
    with locked(), pytest.raises(JournalError, match=r"on_commit.*PostgreSQL") as caught:
        collect()
    assert time.monotonic() - begun < 15
    assert not caught.value.may_have_executed
    assert project.prompts() == 0
    with locked():
        client.stk.initiate(amount=5, phone="0712345678", account_reference="METER-1")  # it writes nothing down
    assert collect().is_new
    with locked(), pytest.raises(JournalError, match="on_commit") as caught:
        collect()
    assert caught.value.may_have_executed  # by the call before
    with pytest.raises(momopay.APIError):
        collect(reference="INV-2", amount=1_000_000_000)
    with locked(), pytest.raises(JournalError, match="on_commit") as caught:
        collect(reference="INV-2", amount=1_000_000_000)
    assert not caught.value.may_have_executed  # it was refused
    with transaction.atomic(using=ALIAS), project.database.cursor() as cursor:
        _close_files()  # as before a fork
        cursor.execute("INSERT INTO orders VALUES ('INV-3')")
    with locked(), pytest.raises(JournalError, match="on_commit"):
        client.payouts.release(reference="INV-1", by="Wanjiku")
    with locked():
        (outcome,) = client.payouts.pay_all([{"reference": "SAL-1", "amount": 50, "phone": "0712345678"}])
    assert isinstance(outcome.error, JournalError)
    assert (outcome.state, outcome.stops, "on_commit" in str(outcome.error)) == ("NOT_SENT", True, True)
    assert project.prompts() == 3


@both_databases
@pytest.mark.parametrize("project", [False], indirect=True)
def test_without_migrate_it_says_so(project: Project) -> None:
    async def view() -> None:
        await async_client.stk.collect_once(**ORDER)

    for call in (collect, lambda: asyncio.run(view()), project.sweep, lambda: call_command("momopay_sweep", every=60)):
        with pytest.raises((ConfigurationError, CommandError), match=f"run manage.py migrate --database {ALIAS}"):
            call()
    assert project.sandbox.requests == []
    with Journal(URL.create(**clients.journal_address()).render_as_string(hide_password=False)) as journal:
        journal.get("INV-1")  # somebody used it before the app
    create_tables(project.database)
    assert collect().is_new


@pytest.mark.parametrize("engine", ["odd"], indirect=True)
def test_the_path_of_a_database_may_have_any_character(project: Project) -> None:
    assert collect().is_new
    assert project.database.introspection.table_names()


def url_of(kind: str, **engine: Any) -> URL:
    with database({"ENGINE": f"django.db.backends.{kind}", **engine}), override_settings(MOMOPAY={"DATABASE": ALIAS}):
        return URL.create(**clients.journal_address())


def test_the_journal_is_in_the_file_or_on_the_server_that_django_uses(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite3"
    assert url_of("sqlite3", NAME=path).database == str(path)
    server = {"NAME": "shop", "HOST": "db.example", "PORT": "5433"}
    options = {"sslmode": "require", "server_side_binding": True, "prepare_threshold": 5, "connect_timeout": 5}
    options |= {"sslrootcert": tmp_path / "ca.pem"}
    url = url_of("postgresql", **server, USER="u@x", PASSWORD="p/w:%", OPTIONS=options)
    assert (url.username, url.password, url.database) == ("u@x", "p/w:%", None)
    expected = {"dbname": "shop", "host": "db.example", "port": "5433", "sslmode": "require", "connect_timeout": "5"}
    assert url.query == expected | {"client_encoding": "UTF8", "sslrootcert": str(tmp_path / "ca.pem")}
    assert url_of("postgresql", **server).translate_connect_args() == {}
