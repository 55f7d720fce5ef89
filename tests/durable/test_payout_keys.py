"""The Idempotency-Key of payouts: the same from any process and any journal, another one for another attempt."""

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from bodies import envelope, page, refusal, wallet
from drivers import Drive, Driver, unique_key
from durable.kit import KEY_CHECK, Service, collect, over_both_clients, pay, pay_all, payout_record, refund, release
from durable.kit import long_ago as leases_ended
from events_kit import Watcher
from journal.constants import ACCEPTED, NOT_SENT, PHONE, REFUSED, UNKNOWN
from journal.database_kit import execute, store_of
from journal.kit import begin, draft, found, lease_of, put_collection, state_of
from journal.records import report
from momopay import ConfigurationError, Journal, MomoPayError, OutcomeUnknownError
from momopay.durable import decide
from momopay.events import RetryScheduled
from momopay.journal.entries import Moment
from momopay.journal.guards import Mark
from momopay.journal.rules import payout_key
from virtual import virtual_client

Trouble = Callable[["KeyedService"], httpx.Response]
TENANT = "0c9f8a34-5a37-4f5e-8a37-0f1a2b3c4d5e"


class KeyedService(Service):
    """A service in memory that honours keys, or ignores them. Each payout meets the next of its troubles, if any."""

    def __init__(self, *troubles: Trouble, honours: bool = True, tenant: str | None = TENANT) -> None:
        super().__init__()
        self.troubles = list(troubles)
        self.honours = honours
        self.tenant = tenant
        self.payments: list[dict[str, Any]] = []
        self.hidden = False
        self.keys: list[str | None] = []
        self.bodies: list[bytes] = []
        self._by_key: dict[str | None, dict[str, Any]] = {}

    def _response(self, request: httpx.Request, path: str) -> httpx.Response:
        if f"{request.method} {path}" == KEY_CHECK:
            own = envelope(wallet(tenantId=self.tenant))
            return httpx.Response(200, json=own) if self.tenant else httpx.Response(403, json=refusal("FORBIDDEN"))
        if request.method == "GET":
            shown = [] if self.hidden else [{**each, "accountReference": each["reference"]} for each in self.payments]
            return httpx.Response(200, json=envelope(page(shown[::-1])))
        self.keys.append(request.headers.get("idempotency-key"))
        self.bodies.append(request.content)
        return self.troubles.pop(0)(self) if self.troubles else self.pay()

    def pay(self, **differing: Any) -> httpx.Response:
        body, key = json.loads(self.bodies[-1]), self.keys[-1]
        made = self._by_key.get(key) if self.honours else None
        if made is None:
            fields = {"reference": body["reference"], "amount": body["amount"], "phone": body["phone"]}
            made = payout_record(transactionId=f"t-{len(self.payments) + 1}", tenantId=self.tenant or TENANT, **fields)
            self.payments.append(made)
            self._by_key[key] = made
        return httpx.Response(201, json=envelope({**made, **differing}))


def keyed(
    drive: Drive, *troubles: Trouble, honours: bool = True, tenant: str | None = TENANT, **options: Any
) -> tuple[KeyedService, Driver]:
    """Return a service, and a client of it."""
    service = KeyedService(*troubles, honours=honours, tenant=tenant)
    return service, drive(transport=service.transport, **options)


def lost(service: KeyedService) -> httpx.Response:
    """The request never reached the service, which nobody can know."""
    raise httpx.ReadError("cut")


def made_and_lost(service: KeyedService) -> httpx.Response:
    service.pay()
    raise httpx.ReadError("cut")


def unsent(service: KeyedService) -> httpx.Response:
    raise httpx.ConnectError("refused")


def answers(status: int, code: str) -> Trouble:
    return lambda _service: httpx.Response(status, json=refusal(code))


@pytest.fixture
def journals(tmp_path: Path) -> Iterator[tuple[Journal, Journal]]:
    with Journal(f"sqlite:///{tmp_path}/one.db") as one, Journal(f"sqlite:///{tmp_path}/two.db") as two:
        yield one, two


def test_a_key_is_short_ascii_and_differs_with_each_field() -> None:
    base = ("tenant", "r", Decimal(100), "254712345678", 1)
    others = [
        ("tenanu", *base[1:]),
        ("tenant", "r2", *base[2:]),
        ("tenant", "r", Decimal("100.01"), *base[3:]),
        ("tenant", "r", Decimal(100), "254712345679", 1),
        (*base[:4], 2),
        # Other fields whose texts are the same one after another.
        ("tenan", "tr", *base[2:]),
        ("tenant", "r1", Decimal(0), *base[3:]),
        ("tenant", 'r", "100', *base[2:]),
        ("tenant", "r", Decimal(10), "0254712345678", 1),
        ("tenant", "Zo\N{LATIN SMALL LETTER E WITH DIAERESIS} \N{GRINNING FACE}", *base[2:]),
    ]
    keys = [payout_key(*each) for each in (base, *others)]
    assert len(set(keys)) == len(keys)
    assert all(each.isascii() and each.isalnum() and len(each) <= 64 for each in keys)
    assert payout_key("tenant", "r", Decimal("100.00"), "254712345678", 1) == keys[0]


@over_both_clients
def test_two_journals_send_one_key_and_pay_once_where_it_is_honoured(
    drive: Drive, journals: tuple[Journal, Journal]
) -> None:
    service = KeyedService()
    service.hidden = True
    one, two = journals
    first = drive(api_key=unique_key(), transport=service.transport)(pay(one, amount=100, phone="0712 345 678"))
    again = drive(api_key=unique_key(), transport=service.transport)
    second = again(pay(two, amount=Decimal("100.00"), phone="+254712345678", description="again"))
    assert (first.transaction_id, second.transaction_id, len(service.payments)) == ("t-1", "t-1", 1)
    assert [found(each).idempotency_key for each in journals] == service.keys
    assert service.keys[0] == service.keys[1] == payout_key(TENANT, "r", Decimal(100), "254712345678", 1)


@pytest.mark.parametrize(
    "trouble", [unsent, *(answers(429, code) for code in ("RATE_LIMIT_EXCEEDED", "TRANSACTION_HEALTH_BLOCKED"))]
)
@over_both_clients
def test_what_repeats_an_attempt_keeps_its_key(drive: Drive, journal: Journal, trouble: Trouble) -> None:
    # A key of its own, which the block of prompts stays with.
    service, sdk = keyed(drive, trouble, trouble, max_attempts=1, api_key=unique_key())
    for _ in range(2):
        with pytest.raises(MomoPayError):
            sdk(pay(journal))
    assert sdk(pay(journal)).is_new
    assert len(service.keys) == 3
    assert len(set(service.keys)) == 1


@pytest.mark.usefixtures("no_backoff")
@over_both_clients
def test_what_follows_a_definite_refusal_is_another_attempt(drive: Drive, journals: tuple[Journal, Journal]) -> None:
    service, sdk = keyed(drive, answers(402, "INSUFFICIENT_FUNDS"), answers(429, "RATE_LIMIT_EXCEEDED"))
    for each in journals:
        if each is journals[0]:
            with pytest.raises(MomoPayError):
                sdk(pay(each))
            assert state_of(each) is REFUSED
        sdk(pay(each))
    numbers = [1, 2, 2, 1]
    assert service.keys == [payout_key(TENANT, "r", Decimal(10), PHONE, number) for number in numbers]


def test_the_pauses_before_a_payout_is_sent_again_grow_until_its_attempts_or_its_time_are_used_up(
    journal: Journal,
) -> None:
    def answer(method: str, path: str) -> tuple[int, Any]:
        return (500, b"") if method == "POST" else (200, envelope(wallet() if path in KEY_CHECK else page([])))

    client, port = virtual_client(answer, payout_keys=True, max_attempts=4, on_event=(seen := Watcher()))
    for reference, deadline, pauses in (("a", 90.0, [0.5, 1.0, 2.0]), ("b", 2.5, [0.5, 1.0])):
        seen.take()
        port.slept.clear()
        with pytest.raises(OutcomeUnknownError):
            pay(journal, reference)(client.with_options(deadline=deadline))
        assert port.slept == pauses
        assert [(each.seconds, each.error) for each in seen.of(RetryScheduled)] == [
            (each, OutcomeUnknownError) for each in pauses
        ]


def test_a_release_is_no_refusal(drive: Drive, journal: Journal) -> None:
    service, sdk = keyed(drive, made_and_lost)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    service.hidden = True
    leases_ended(journal)
    sdk(release(journal))
    assert state_of(journal) is NOT_SENT
    assert sdk(pay(journal)).transaction_id == "t-1"
    assert len(service.payments) == 1, "the person was mistaken"


def test_the_time_to_send_again_begins_with_the_first_request_that_has_the_key(drive: Drive, journal: Journal) -> None:
    _, sdk = keyed(drive, lost, lost)
    begun: list[str | None] = []
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            sdk(pay(journal))
        begun.append(found(journal).key_since)
        leases_ended(journal)
        sdk(release(journal))
    assert begun[0] == begun[1] is not None


def test_a_repeat_has_the_key_of_its_attempt_though_the_tenant_is_known_by_now(
    drive: Drive, journals: tuple[Journal, Journal], tmp_path: Path
) -> None:
    service, sdk = keyed(drive, lost, tenant=None, payout_keys=True, max_attempts=1)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journals[0]))
    service.tenant = TENANT
    with Journal(f"sqlite:///{tmp_path}/one.db") as later:
        assert sdk(pay(later)).is_new
    assert service.keys[0] == service.keys[1]


@over_both_clients
def test_payrolls_and_refunds_send_keys_and_nothing_else_does(drive: Drive, journal: Journal) -> None:
    service, sdk = keyed(drive)
    sdk.collect(pay_all(journal, "a", "b"))
    put_collection(journal)
    sdk(refund(journal))
    assert [found(journal, each).idempotency_key for each in ("a", "b", "o-R1")] == service.keys
    sdk(lambda client: client.payouts.initiate(reference="r", amount=10, phone=PHONE))
    assert service.keys.pop() is None
    assert None not in service.keys
    assert len(set(service.keys)) == 3


def test_a_key_that_may_not_read_the_wallet_derives_the_same_from_any_journal(
    drive: Drive, journals: tuple[Journal, Journal], tmp_path: Path
) -> None:
    service, sdk = keyed(drive, tenant=None)
    one, two = journals
    for each, references in ((one, "ab"), (two, "b")):
        for reference in references:
            sdk(pay(each, reference))
    # An answer has shown the tenant since, also to a process that opens the journal later.
    with Journal(f"sqlite:///{tmp_path}/one.db") as later:
        sdk(pay(later, "c"))
    sdk(pay(two, "c"))
    assert len(service.keys) == 5
    assert len(set(service.keys)) == len(service.payments) == 3
    other = drive(api_key=unique_key(), transport=service.transport)
    other(pay(two, "d"))
    sdk(pay(one, "d"))
    assert service.keys[-1] != service.keys[-2], "nothing shows that the keys are of one tenant"


def test_an_anonymised_entry_has_no_key_from_which_to_guess_the_phone(drive: Drive, journal: Journal) -> None:
    _, sdk = keyed(drive, answers(402, "INSUFFICIENT_FUNDS"))
    with pytest.raises(MomoPayError):
        sdk(pay(journal))
    assert found(journal).idempotency_key
    assert journal.anonymise(before=datetime(2100, 1, 1, tzinfo=UTC)) == 1
    assert found(journal).idempotency_key is None


# Clients that know that the service honours keys


@pytest.mark.parametrize("wrong", [None, 1, "false", "True"])
def test_payout_keys_is_true_or_false_and_kept_by_copies(drive: Drive, wrong: Any) -> None:
    assert [drive(**given).client.payout_keys for given in ({}, {"payout_keys": True})] == [False, True]
    assert drive(payout_keys=True).client.with_options(timeout=1).payout_keys
    with pytest.raises(ConfigurationError, match="payout_keys must be True or False"):
        drive(payout_keys=wrong)


def aged(journal: Journal, seconds: float, *, machine: str | None = None, service: float | None = None) -> None:
    """Make the first request with the key so many seconds older, by the clocks that are given."""
    since = Moment.of(found(journal).key_since or "")
    older = Moment(machine or since.machine, since.clock - seconds, service)
    execute(journal, f"UPDATE momopay_payments SET key_since = '{older}'")


def in_doubt(drive: Drive, journal: Journal, *troubles: Trouble) -> tuple[KeyedService, Driver]:
    """Lose the answer to a payout, then return a client of the next process, and the service with more troubles."""
    service, sdk = keyed(drive, lost)
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    service.troubles = list(troubles)
    return service, drive(transport=service.transport, payout_keys=True, max_attempts=2)


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize("trouble", [lost, made_and_lost, answers(500, "INTERNAL_ERROR"), answers(409, "NEW_CODE")])
@pytest.mark.parametrize("hidden", [True, False])
@over_both_clients
def test_a_payout_in_doubt_is_searched_for_and_sent_again_with_its_key(
    drive: Drive, journal: Journal, trouble: Trouble, *, hidden: bool
) -> None:
    service, sdk = keyed(drive, trouble, payout_keys=True)
    service.hidden = hidden
    paid = sdk(pay(journal, description="May"))
    assert (paid.transaction_id, len(service.payments), state_of(journal)) == ("t-1", 1, ACCEPTED)
    is_found = trouble is made_and_lost and not hidden
    assert len(service.keys) == (1 if is_found else 2)
    assert len(set(service.keys)) == len(set(service.bodies)) == 1
    assert paid.is_new is (not is_found)


@pytest.mark.usefixtures("no_backoff")
@pytest.mark.parametrize(
    "trouble", [lost, unsent, answers(402, "INSUFFICIENT_FUNDS"), answers(429, "RATE_LIMIT_EXCEEDED")]
)
@over_both_clients
def test_a_later_process_sends_again_and_its_failures_leave_the_payout_in_doubt(
    drive: Drive, journal: Journal, trouble: Trouble
) -> None:
    service, sdk = in_doubt(drive, journal, trouble, trouble)
    first = found(journal)
    with pytest.raises(MomoPayError) as caught:
        sdk(pay(journal))
    assert caught.value.may_have_executed, "the first request may have arrived"
    left = found(journal)
    assert (left.state, left.key_since, left.idempotency_key) == (UNKNOWN, first.key_since, first.idempotency_key)
    service.troubles.clear()
    assert sdk(pay(journal)).transaction_id == "t-1"
    assert len(service.payments) == len(set(service.keys)) == 1


@pytest.mark.usefixtures("no_backoff")
def test_a_journal_that_goes_back_before_a_repeat_leaves_the_payout_in_doubt(drive: Drive, journal: Journal) -> None:
    def lost_later_than_the_journal(service: KeyedService) -> httpx.Response:
        store_of(journal).watermark.note(Mark(0, 1000))
        return lost(service)

    _, sdk = keyed(drive, lost_later_than_the_journal, payout_keys=True)
    with pytest.raises(ConfigurationError, match="went back in time") as caught:
        sdk(pay(journal))
    assert caught.value.may_have_executed, "the first request may have arrived"


@pytest.mark.usefixtures("no_backoff")
def test_where_the_claim_is_not_true_a_payout_is_made_twice(drive: Drive, journal: Journal) -> None:
    service, sdk = keyed(drive, made_and_lost, honours=False, payout_keys=True)
    service.hidden = True
    sdk(pay(journal))
    assert len(service.payments) == 2


@pytest.mark.parametrize(
    ("age", "is_sent"),
    [
        ({"seconds": 890}, True),
        ({"seconds": 910}, False),
        ({"seconds": -60}, False),  # a clock that runs backwards shows nothing
        ({"seconds": 0, "machine": "another"}, False),
        ({"seconds": 0, "machine": "another", "service": 890}, True),
        ({"seconds": 0, "machine": "another", "service": 910}, False),
        ({"seconds": 0, "service": 910}, False),  # the longest time counts
        ({"seconds": 910, "service": 0}, False),
    ],
)
def test_nothing_is_sent_again_once_15_minutes_may_have_passed(
    drive: Drive, journal: Journal, age: dict[str, Any], *, is_sent: bool
) -> None:
    service, _ = in_doubt(drive, journal)
    if "service" in age:
        age = {**age, "service": datetime.now(UTC).timestamp() - age["service"]}
    aged(journal, **age)
    service.ahead = timedelta(0)
    sdk = drive(transport=service.transport, payout_keys=True)
    with nullcontext() if is_sent else pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert len(service.keys) == 1 + is_sent


def test_no_byte_of_a_repeated_request_is_written_after_15_minutes(drive: Drive, journal: Journal) -> None:
    service, sdk = in_doubt(drive, journal)
    aged(journal, 899.5)  # less than what must be left of a deadline of 90 s
    with pytest.raises(MomoPayError) as caught:
        sdk(pay(journal))
    assert caught.value.may_have_executed
    assert (len(service.keys), state_of(journal)) == (1, UNKNOWN)


@pytest.mark.parametrize("differing", [{"amount": 11}, {"phone": "254700000001"}, {"reference": "another"}])
@pytest.mark.parametrize("others", [{}, dict.fromkeys(["status", "currency", "createdAt", "updatedAt"])])
@over_both_clients
def test_an_answer_with_another_payment_is_a_contradiction_and_ends_all_repeats(
    drive: Drive, journal: Journal, differing: dict[str, Any], others: dict[str, Any]
) -> None:
    service, sdk = in_doubt(drive, journal, lambda service: service.pay(**others, **differing))
    service.hidden = True
    with pytest.raises(OutcomeUnknownError, match=f"another {next(iter(differing))}"):
        sdk(pay(journal))
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert (len(service.keys), state_of(journal)) == (2, UNKNOWN)


@pytest.mark.parametrize("differing", [{"amount": 11}, {"phone": "254700000001"}, {"type": "STK"}])
def test_a_near_match_blocks_a_repeat(drive: Drive, journal: Journal, differing: dict[str, Any]) -> None:
    service, sdk = in_doubt(drive, journal)
    service.payments.append(payout_record(reference="r", **differing))
    with pytest.raises(OutcomeUnknownError) as caught:
        sdk(pay(journal))
    assert caught.value.near_matches
    assert len(service.keys) == 1


def test_what_the_list_puts_in_doubt_is_not_sent_again_when_the_list_forgets_it(drive: Drive, journal: Journal) -> None:
    service, sdk = in_doubt(drive, journal)
    leases_ended(journal)
    sdk(release(journal))
    service.payments.append(payout_record(reference="r", amount=11))
    for hidden in (False, True):
        service.hidden = hidden
        with pytest.raises(OutcomeUnknownError):
            sdk(pay(journal))
    assert (len(service.keys), state_of(journal)) == (1, UNKNOWN)


def test_what_a_later_read_contradicts_is_not_sent_again(drive: Drive, journal: Journal) -> None:
    service, sdk = keyed(drive, payout_keys=True)
    sdk(pay(journal))
    service.hidden = True
    assert store_of(journal).mark_contradicted(found(journal), "t-1")
    with pytest.raises(OutcomeUnknownError):
        sdk(pay(journal))
    assert len(service.keys) == 1


@pytest.mark.parametrize("payout_keys", [True, False])
@over_both_clients
def test_a_duplicate_key_means_that_it_was_sent(
    drive: Drive, journal: Journal, tmp_path: Path, *, payout_keys: bool
) -> None:
    duplicate = answers(409, "DUPLICATE_IDEMPOTENCY_KEY")
    service, sdk = keyed(drive, duplicate, duplicate, payout_keys=payout_keys)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            sdk(pay(journal))
    assert (len(service.keys), state_of(journal)) == (1, UNKNOWN)
    service.payments.append(payout_record(reference="r"))
    assert sdk(pay(journal)).transaction_id == "t-1"
    # Another journal finds it at once.
    service.troubles = [duplicate]
    with Journal(f"sqlite:///{tmp_path}/another.db") as other:
        assert sdk(pay(other)).transaction_id == "t-1"


def test_what_another_call_sends_is_not_sent_beside_it(drive: Drive, journal: Journal) -> None:
    service, sdk = keyed(drive, payout_keys=True)
    with lease_of(journal) as lease, patch.object(decide, "PAUSE", 100.0):  # longer than the deadline
        begin(journal, lease, idempotency_key="k", key_since=str(Moment("m", 0.0, None)))
        with pytest.raises(OutcomeUnknownError, match="another call was still sending"):
            sdk(pay(journal))
    assert not service.keys


def test_a_repeated_request_that_gives_up_before_it_is_sent_leaves_the_payout_in_doubt(journal: Journal) -> None:
    with lease_of(journal) as first, lease_of(journal) as second:
        begin(journal, first)
        unknown = found(journal).model_copy(update={"state": UNKNOWN})
        store_of(journal).leases.end(second)
        begin(journal, second, read=unknown, is_resend=True, key_since="since")
        assert (state_of(journal), found(journal).key_since) == (UNKNOWN, "since")


def test_prompts_have_no_key_and_are_not_repeated(drive: Drive, journal: Journal) -> None:
    service, sdk = keyed(drive, lost, payout_keys=True)
    for _ in range(2):
        with pytest.raises(OutcomeUnknownError):
            sdk(collect(journal))
    assert service.keys == [None]


def test_a_late_answer_to_the_first_request_is_the_same_payment(journal: Journal) -> None:
    with lease_of(journal) as first, lease_of(journal) as second:
        begin(journal, first)
        unknown = found(journal).model_copy(update={"state": UNKNOWN})
        assert begin(journal, second, read=unknown, is_resend=True)
        for lease in (first, second):
            assert store_of(journal).record(draft(), report("t-1"), lease=lease)
            assert (state_of(journal), found(journal).transaction_ids) == (ACCEPTED, ("t-1",))


@over_both_clients
@pytest.mark.parametrize(
    ("age", "ahead", "is_new"),
    [
        (0, 0, True),
        (1, 0, True),
        (4, 0, False),
        (3600, 0, False),
        (-7200, 7200, True),
        (0, 7200, False),
        (9, None, True),
    ],
)
def test_what_was_made_before_the_first_request_is_not_new(
    drive: Drive, journal: Journal, age: float, ahead: float | None, is_new: bool
) -> None:
    """By the service's clock, which is so many seconds ahead of ours; None: it does not show its time."""
    created = (datetime.now(UTC) - timedelta(seconds=age)).isoformat()
    shown = None if ahead is None else timedelta(seconds=ahead)
    service = Service(payout_record(reference="r", createdAt=created), ahead=shown)
    made = drive(transport=service.transport)(pay(journal))
    assert (made.is_new, service.sent, state_of(journal)) == (is_new, 1, ACCEPTED)
