"""Each safety, turned off on purpose by one small patch: the campaign must then find what the safety prevents."""

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import module_from_spec
from typing import Any
from unittest.mock import patch

from bodies import transaction
from campaign import clocks
from campaign.judge import Finding
from momopay import Callback, EntryKind, Journal, JournalEntry, JournalState, OutcomeUnknownError, Transaction
from momopay._core.endpoint import Endpoint
from momopay._core.retry import SEARCHED_FIRST, FailureKind
from momopay._transport import clock as _clock
from momopay.durable import call, lookup, receive, send
from momopay.durable.call import DurableCall
from momopay.durable.decide import Memory, Policy, Step, decide
from momopay.journal import rules, statements
from momopay.journal.delivery import Deliveries, Recorder
from momopay.journal.entries import MAY_BE_SENT
from momopay.journal.evidence import Draft, Evidence
from momopay.journal.leases import Lease
from momopay.journal.queue import Due, Queue
from momopay.journal.rules import Cause
from momopay.journal.store import Store
from momopay.models.enums import TransactionStatus
from momopay.models.records import note_response
from momopay.resources import transactions
from momopay.types import ResponseInfo

Patch = Any
CAUGHT = frozenset(
    {
        *(Finding.DOUBLE, Finding.LOST, Finding.LATE, Finding.WRONG_STATE, Finding.WRONG_WORD, Finding.HANDLED),
        Finding.BELIEVED,
    }
)
"""What a control must be caught at. (While payments are under way, others of the findings come and go.)"""


def _repeating(kind: FailureKind) -> list[Patch]:
    rule = replace(SEARCHED_FIRST, retries_on=SEARCHED_FIRST.retries_on | {kind})
    with patch.object(Endpoint, "__post_init__"):  # which refuses such a rule
        repeating = {kind: (replace(each, retry_policy=rule), path) for kind, (each, path) in send.ENDPOINTS.items()}
    return [patch.dict(send.ENDPOINTS, repeating)]


def _returning(result: Any) -> Any:
    async def give(*_arguments: Any, **_options: Any) -> Any:
        return result

    return give


def _always(result: Any) -> Any:
    def give(*_arguments: Any) -> Any:
        return result

    return give


def _deciding_by(changes: Callable[[JournalEntry], dict[str, object]]) -> Patch:
    """Let each call decide about a row that differs from the journal's."""

    def decide_wrongly(entry: JournalEntry | None, memory: Memory, policy: Policy) -> Step:
        return decide(None if entry is None else entry.model_copy(update=changes(entry)), memory, policy)

    return patch.object(call, "decide", decide_wrongly)


def repeat_on_read_timeout() -> list[Patch]:
    """A payment without a reply goes out again."""
    return _repeating(FailureKind.NO_REPLY)


def journal_after_send() -> list[Patch]:
    """The row is written when the answer is there."""
    begin, record, accept = Store.begin, Store.record_outcome, Store.record
    waiting: dict[str, tuple[Draft, float, dict[str, Any]]] = {}

    def read(self: Store, lease: Lease, draft: Draft, seconds: float, **given: Any) -> bool:
        entry = self.get(draft.kind, draft.reference)
        if entry is not None and entry.state not in MAY_BE_SENT:
            return False
        waiting[lease.id] = (draft, seconds, given)
        return True

    def write(self: Store, lease: Lease, draft: Draft, state: JournalState, **seen: Any) -> bool:
        values = waiting.pop(lease.id, None)
        if values is None or not begin(self, lease, values[0], values[1], **values[2]):
            return False
        return record(self, lease, draft, state, **seen)

    def write_accepted(self: Store, entry: Any, report: Any, *, lease: Lease | None = None, **seen: Any) -> bool:
        values = None if lease is None else waiting.pop(lease.id, None)
        if lease is not None and values is not None:
            begin(self, lease, values[0], values[1], **values[2])
        return accept(self, entry, report, lease=lease, **seen)

    patched = {"begin": read, "record_outcome": write, "record": write_accepted}
    patches = [patch.object(Store, name, instead) for name, instead in patched.items()]
    return [*patches, patch.object(send.Fence, "check", _returning(None))]


def no_lease() -> list[Patch]:
    """A row that is being sent keeps nobody else from sending."""

    def sendable(entry: JournalEntry) -> dict[str, object]:
        return {"state": JournalState.NOT_SENT if entry.state is JournalState.SENDING else entry.state}

    begin = {JournalState.SENDING: MAY_BE_SENT | {None, JournalState.SENDING}}
    loose = {kind: {**rules.transitions(kind), Cause.BEGIN: begin} for kind in EntryKind}
    assert statements.__spec__ is not None
    assert statements.__spec__.loader is not None
    fresh = module_from_spec(statements.__spec__)
    with patch.object(rules, "transitions", loose.__getitem__):
        statements.__spec__.loader.exec_module(fresh)
    return [_deciding_by(sendable), patch.object(statements, "BEGIN", fresh.BEGIN)]


def send_again_when_absent() -> list[Patch]:
    """What the list does not show counts as not sent."""
    run: Any = vars(DurableCall)["run"]

    async def run_again(self: Any, **options: Any) -> Any:
        try:
            return await run(self, **options)
        except OutcomeUnknownError as error:
            if error.matches or error.near_matches or error.__cause__ is not None:
                raise
        entry = self._store.get(self._kind, self._draft.reference)
        if entry is not None:
            self._store.release(entry, "a control")
        return await run(self, **options)

    return [patch.object(DurableCall, "run", run_again)]


def open_prompt_overlooked() -> list[Patch]:
    """An open prompt does not block the next one."""

    def ended(entry: JournalEntry) -> dict[str, object]:
        gone = {"status": TransactionStatus.CANCELLED}
        return {"transactions": tuple(e.model_copy(update=gone) if e.is_open else e for e in entry.transactions)}

    return [_deciding_by(ended)]


def end_not_read_again() -> list[Patch]:
    """A sweep takes an end without success for the last word."""
    due = Queue.due

    def overlook(self: Queue, *, has_handler: bool = False) -> Due:
        return due(self, has_handler=has_handler)._replace(ended_prompts=[])

    return [patch.object(Queue, "due", overlook)]


def forged_callback_settles() -> list[Patch]:
    """A callback is believed without a look at the service's record."""

    async def believe(_loop: Any, _session: Any, callback: Callback) -> Transaction:
        stated = callback.transaction
        shown = {"type": "B2C", "amount": stated.amount, "phone": stated.phone_number}
        shown["accountReference"] = stated.external_reference
        record = Transaction.model_validate(transaction(stated.id, str(stated.status), **shown))
        note_response(record, ResponseInfo("", 200, {}, attempts=1, elapsed=0.0))
        return record

    return [patch.object(module, "confirm", believe) for module in (receive, transactions)]


def word_believed() -> list[Patch]:
    """A callback about an end that was delivered is recorded whole."""

    def record_all(self: Any, entry: JournalEntry, record: Any) -> None:
        self._record(entry, Evidence.of(record))

    return [patch.object(Recorder, "add_receipt", record_all)]


def delivery_forgotten() -> list[Patch]:
    """An end is handled each time that somebody brings it."""

    @contextmanager
    def first(_self: Journal, _end: Any) -> Generator[bool]:
        yield True

    return [patch.object(Journal, "handling", first), patch.object(Deliveries, "was_delivered", _always(False))]


def row_not_read_again() -> list[Patch]:
    """A payer that was held up does not look whether its row was released meanwhile."""
    return [patch.object(send.Fence, "check", _returning(None))]


def near_matches_ignored() -> list[Patch]:
    """A transaction that has the reference, and differs in something else, counts as absent."""

    def proof(kind: EntryKind, exact: Any, _near: Any) -> Any:
        return rules.proof(kind, exact, [])

    return [patch.object(lookup, "proof", proof)]


def release_before_the_minute() -> list[Patch]:
    """What a dead or frozen process was paying is released at once."""
    return [patch.object(Store, "seconds_to_release", _always(0.0))]


def leases_by_wall_time() -> list[Patch]:
    """Leases are counted by the clock that each process shows, and that somebody sets."""
    return [patch.object(_clock, "now", clocks.shown)]


Controls = Mapping[str, Callable[[], list[Patch]]]


def _named(*controls: Callable[[], list[Patch]]) -> Controls:
    return {each.__name__: each for each in controls}


OF_SIMULATION = _named(
    *(repeat_on_read_timeout, journal_after_send, no_lease, send_again_when_absent, forged_callback_settles),
    *(row_not_read_again, near_matches_ignored, delivery_forgotten, word_believed),
)
OF_LATE = _named(release_before_the_minute, leases_by_wall_time)
"""Controls of late payouts, which need the machine's time."""
OF_ORDERS = _named(open_prompt_overlooked, end_not_read_again)
"""Controls that only the campaign of collections has."""
OF_COLLECTIONS = {**OF_ORDERS, **_named(repeat_on_read_timeout, send_again_when_absent)}


@contextmanager
def broken(name: str | None) -> Generator[None]:
    """Turn off the safety of this control, or none."""
    with ExitStack() as stack:
        for each in {**OF_SIMULATION, **OF_LATE, **OF_ORDERS}[name]() if name else ():
            stack.enter_context(each)
        yield
