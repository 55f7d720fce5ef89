"""The steps of a call of ``pay_once`` or ``collect_once``, and what the statements of the journal do to the row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from math import inf
from typing import Final

from model.rules import Rules, World, may_follow
from model.state import FOREIGN, HELD, NONE, Call, Look, Phase, Row, State
from momopay.durable import decide
from momopay.journal.entries import JournalEntry, JournalState, JournalTransaction, Moment
from momopay.journal.rules import RESEND_WITHIN, Cause, Proof, proof
from momopay.models.enums import EntryKind, Stage, TransactionStatus

Steps = Iterator[tuple[str, State]]


_STATUS: Final = {
    Stage.OPEN: TransactionStatus.PENDING,
    Stage.PAID: TransactionStatus.SUCCESS,
    Stage.ENDED: TransactionStatus.CANCELLED,
}
_RESULTS: Final = {
    JournalState.ACCEPTED: [decide.Result.ACCEPTED],
    JournalState.REFUSED: [decide.Result.REFUSED, decide.Result.RATE_LIMITED],
    JournalState.NOT_SENT: [decide.Result.NOT_SENT],
    JournalState.UNKNOWN: [decide.Result.LOST, decide.Result.OTHER_PAYMENT],
}
_LONG_AGO: Final = datetime(2026, 1, 1, tzinfo=UTC)


@cache  # an exploration asks for the same few thousand again and again
def entry_of(kind: EntryKind, row: Row) -> JournalEntry:
    """Return the row as a call reads it. What a decision does not depend on is missing."""
    transactions = [
        JournalTransaction.model_construct(transaction_id=str(number), status=_STATUS[stage], sent_at=_LONG_AGO)
        for number, stage in row.known
    ]
    return JournalEntry.model_construct(
        kind=kind,
        reference=str(row.claim),  # so that a row of another claim is another one
        state=row.state,
        attempts=row.attempts,
        transactions=tuple(transactions),
        clock_offset=0.0,
        key_since=str(Moment("", 0.0, None)) if row.key else None,
    )


@cache
def decided(
    world: World, row: Row | None, searched: Row | None, passed: tuple[int, ...], *, is_in_time: bool
) -> decide.Step:
    """Return the code's decision: `passed` are the prompts that were read as open, and are abandoned in some worlds."""
    memory = decide.Memory(
        now=Moment("", 1.0 if is_in_time else RESEND_WITHIN, None),
        read=tuple(decide.Shown(str(number), Stage.OPEN, inf) for number in passed),
        searched=None if searched is None else entry_of(world.kind, searched),
    )
    abandon_after = 0.0 if world.abandons else inf
    policy = decide.Policy(world.kind, payout_keys=world.payout_keys, abandon_after=abandon_after)
    return decide.decide(None if row is None else entry_of(world.kind, row), memory, policy)


@cache
def decided_after_send(world: World, row: Row | None, result: decide.Result) -> decide.Step:
    """Return the code's decision once a call has recorded how its send ended."""
    policy = decide.Policy(world.kind, payout_keys=world.payout_keys)
    memory = decide.Memory(result=result, attempts=1)
    return decide.decide(None if row is None else entry_of(world.kind, row), memory, policy)


class Statements:
    def __init__(self, rules: Rules, world: World) -> None:
        self._rules = rules
        self._kind = world.kind
        self._is_payout = world.kind is EntryKind.PAYOUT
        self._keys = world.payout_keys
        # What a broken rule lets a call send besides what the code's own table allows.
        broken = (
            (JournalState.SENDING, rules.sending_blocks),
            (JournalState.ACCEPTED, rules.open_blocks or not self._is_payout),
            (JournalState.UNKNOWN, rules.absence_is_no_proof),
        )
        self._also_sent = {state for state, kept in broken if not kept}

    def begun(self, state: State, index: int) -> State | None:
        """Return the state after a call's begin statement, None if it changes nothing."""
        row, rules, saw = state.row, self._rules, state.calls[index].saw
        if state.calls[index].key:
            if row is None or row != saw or not may_follow(self._kind, Cause.RESEND, row.state, JournalState.SENDING):
                return None
            return state._replace(row=row._replace(state=JournalState.SENDING, claim=index + 1, known=()))
        if rules.begin_is_conditional:
            before = None if row is None else row.state
            if not may_follow(self._kind, Cause.BEGIN, before, JournalState.SENDING) and before not in self._also_sent:
                return None
            if rules.begin_needs_the_row_it_read and saw != row:
                return None
        if row is None or self._is_payout:
            return state._replace(row=Row(JournalState.SENDING, index + 1, key=index + 1 if self._keys else 0))
        return state._replace(row=Row(JournalState.SENDING, index + 1, row.attempts + 1, row.known))

    def recorded(self, state: State, index: int) -> State:
        call, row, rules = state.calls[index], state.row, self._rules
        assert call.outcome is not None
        if row is None:
            return state
        own = row.claim == index + 1
        if call.outcome is JournalState.ACCEPTED and (call.number != HELD or not rules.transaction_has_one_row):
            if own or call.number < NONE or rules.acceptance_overrides:
                return self.accepted(state, call.number, sender=index + 1)
            return state if row.state is JournalState.ACCEPTED else state._replace(told=state.told or call.number)
        needs_claim = rules.undo_needs_the_claim if call.at == "undo" else rules.outcome_needs_the_claim
        is_held = call.outcome is JournalState.ACCEPTED  # another row has the id
        is_unclear = is_held or (call.key and rules.resend_stays_unclear)
        outcome = JournalState.UNKNOWN if is_unclear else call.outcome
        fits = may_follow(self._kind, Cause.OUTCOME, row.state, outcome)
        fits |= not (is_held or rules.outcome_needs_an_open_row)
        if not fits or (not own and (needs_claim or is_held)):
            return state
        if self._is_payout:
            return state._replace(row=Row(outcome, row.claim, key=row.key))
        attempts = row.attempts - (outcome is JournalState.NOT_SENT)
        return state._replace(row=row._replace(state=outcome, attempts=attempts))

    def accepted(self, state: State, number: int, stage: Stage = Stage.OPEN, *, sender: int = NONE) -> State:
        """Return the state after a record of the service was written; `sender` is the call whose answer it is."""
        row = state.row
        if row is None:
            return state
        if self._is_payout:
            may_change = may_follow(self._kind, Cause.ACCEPTANCE, row.state, JournalState.ACCEPTED)
            if row.state is JournalState.ACCEPTED or not may_change:
                return state
            row = row._replace(state=JournalState.ACCEPTED, known=((number, stage),))
            return state._replace(row=row, told=state.told or max(number, NONE))
        known = dict(row.known)
        # The answer of an earlier attempt only adds its prompt; so does what is known already.
        is_latest = number not in known and sender in {NONE, row.claim}
        is_latest |= not self._rules.known_prompt_keeps_a_later_attempt
        known[number] = max(known.get(number, Stage.OPEN), stage) if self._rules.status_moves_forward else stage
        row = row._replace(known=tuple(sorted(known.items())), state=JournalState.ACCEPTED if is_latest else row.state)
        told = state.told or (number if known[number] is Stage.PAID else NONE)
        state = state._replace(row=row, told=told)
        return state._replace(wrong=state.wrong and bool(state.unknown))

    def sighted(self, state: State, index: int) -> State:
        """Return the state after a search showed what may be the payment, or several that fit."""
        row, call = state.row, state.calls[index]
        assert row is not None
        same = row.claim == call.saw.claim if self._is_payout and call.saw is not None else row == call.saw
        if not same or not may_follow(self._kind, Cause.SEEN, row.state, JournalState.UNKNOWN):
            return state
        seen = JournalState.UNKNOWN if self._rules.sighting_recorded else row.state
        return state._replace(row=row._replace(state=seen), wrong=False)

    def swept(self, state: State) -> State:
        """Return the state after a sweep: prompts in doubt are searched for, open ones are read."""
        row = state.row
        if row is None or self._is_payout:
            return state
        if row.state in {JournalState.SENDING, JournalState.UNKNOWN} and self._rules.sweep_searches:
            for number in state.looking(Look.EXACT):
                state = self.accepted(state, number, state.payments[number - 1].stage)
        for number, stage in row.known:
            if stage is Stage.OPEN and (self._rules.sweep_reads_open_prompts or number == row.known[-1][0]):
                state = self.accepted(state, number, state.payments[number - 1].stage)
        return state


class Calls:
    def __init__(self, rules: Rules, world: World) -> None:
        self._rules = rules
        self._world = world
        self._kind = world.kind
        self._is_payout = world.kind is EntryKind.PAYOUT
        self.statements = Statements(rules, world)

    def started(self, state: State) -> Steps:
        """Yield what a new call may do first: it reads the row."""
        index = len(state.calls)
        for label, after in self._read(state._replace(calls=(*state.calls, Call()), waiting=state.waiting - 1), index):
            # A call that changes nothing and ends is one that was never made.
            if after.calls[index].at != "end" or after._replace(calls=state.calls, waiting=state.waiting) != state:
                yield label, after

    def steps(self, state: State, index: int) -> Steps:
        """Yield what a call that has not ended may do next, and how everything is then."""
        call, name = state.calls[index], f"call {index + 1}"
        match call.at:
            case "read":
                yield from self._read(state, index)
            case "search":
                yield from self._search(state, index)
            case "tell":
                yield f"{name} records that prompt {call.number} is {call.stage.name}", self._told(state, index)
            case "contradict":
                yield f"{name} records that the transaction is another payment", self._contradicted(state, index)
            case "begin":
                yield from self._begin(state, index)
            case "fence":
                yield from self._fence(state, index)
            case "write":
                yield f"{name} writes the body", self._written(state, index)
            case "answer":
                unclear = JournalState.UNKNOWN if self._rules.timeout_is_unclear else JournalState.NOT_SENT
                yield f"{name} gets no answer in time", state.put(index, call._replace(at="record", outcome=unclear))
            case _:
                yield f"{name} records {call.outcome}", self._recorded(state, index)
        # A call that dies before it wrote anything is a call that was never made.
        if call.at in {"fence", "write", "answer", "undo", "record"}:
            yield f"the process of {name} dies", state.ended(index)

    def _recorded(self, state: State, index: int) -> State:
        """Return the state after a call recorded how its send ended."""
        outcome, state = state.calls[index].outcome, self.statements.recorded(state, index)
        assert outcome is not None
        for result in _RESULTS[outcome]:
            step = decided_after_send(self._world, state.row, result)
            # If it goes on after a pause, its earlier request may still arrive: what follows is shown as the next call.
            assert isinstance(step, decide.ReturnSent | decide.ReturnRow | decide.Fail | decide.Wait), step
        return state.ended(index)

    def _read(self, state: State, index: int) -> Steps:
        """Yield what a call does that reads the row: the step that the code decides on."""
        row, call, name = state.row, state.calls[index], f"call {index + 1} reads"
        seen = call._replace(at="begin", saw=row)
        match self._decided(state, call):
            case decide.Send(within):
                key = row.key if row is not None and within is not None else 0
                yield f"{name} {row and row.state}", state.put(index, seen._replace(key=key))
            case decide.Search() if row is not None and row.state in {JournalState.SENDING, JournalState.UNKNOWN}:
                yield from self._search(state.put(index, seen), index)
            case decide.Search():
                yield f"{name} {row and row.state}", state.put(index, seen._replace(at="search"))
            case decide.ReadTransaction() if self._is_payout:
                yield from self._verify(state, index)
            case decide.ReadTransaction(_, number) if state.payments[int(number) - 1].stage is Stage.PAID:
                yield f"{name} that the order is paid", state.ended(index)
            case decide.ReadTransaction(_, number):
                stage = state.payments[int(number) - 1].stage
                tell = seen._replace(at="tell", number=int(number), stage=stage)
                yield f"{name} {row and row.state}, and that prompt {number} is {stage.name}", state.put(index, tell)
            case decide.FailUnknown() | decide.ReturnFound():
                yield f"{name} {row and row.state}, and ends", state.ended(index)
            case other:
                raise AssertionError(other)  # the model does not know this step

    def _decided(self, state: State, call: Call) -> decide.Step:
        """Return the code's decision about the row as it is, or as a broken rule lets the call see it."""
        row, rules, read = state.row, self._rules, call.passed
        searched = call.searched if rules.search_before_resend else row
        is_in_time = row is None or not row.key or state.calls[row.key - 1].phase < Phase.EXPIRED
        return decided(
            self._world,
            row and self._overlooked(row),
            searched and self._overlooked(searched),
            read,
            is_in_time=is_in_time or not rules.resend_in_time,
        )

    def _overlooked(self, row: Row) -> Row:
        """Return the row without what a broken rule lets a call overlook: an open or paid transaction, its state."""
        rules, kept = self._rules, row.known
        if self._is_payout and not rules.open_blocks:
            kept = ()
        if not rules.open_blocks or not rules.paid_blocks:
            gone = {Stage.OPEN: not rules.open_blocks, Stage.PAID: not rules.paid_blocks}
            kept = tuple((number, Stage.ENDED if gone.get(stage) else stage) for number, stage in kept)
        if row.state is JournalState.SENDING:
            # A live sender may look dead. To wait for one that does not changes nothing.
            state = JournalState.UNKNOWN if rules.sending_blocks else JournalState.NOT_SENT
        else:
            state = row.state
        if state is JournalState.UNKNOWN and not rules.absence_is_no_proof:
            state = JournalState.NOT_SENT
        return row._replace(state=state, known=kept)

    def _verify(self, state: State, index: int) -> Steps:
        row, name = state.row, f"call {index + 1} reads ACCEPTED, then the transaction"
        assert row is not None
        foreign = row.transaction < NONE
        if not foreign and state.payments[row.transaction - 1].look != Look.NEAR:
            yield name, state.ended(index)
        elif self._rules.later_read_compared:
            doubted = state.calls[index]._replace(at="contradict", number=row.transaction)
            yield f"{name}, which differs", state.put(index, doubted)
        else:
            broken = "pay_once returned the transaction of another payment" if foreign else None
            yield f"{name}, which differs", state.ended(index)._replace(broken=broken)

    def _contradicted(self, state: State, index: int) -> State:
        row = state.row
        assert row is not None
        same = row.transaction == state.calls[index].number or not self._rules.contradiction_compares_the_id
        if same and may_follow(self._kind, Cause.CONTRADICTED, row.state, JournalState.UNKNOWN):
            # The list may show the payment itself with another amount. Then the true acceptance is doubted, too.
            doubted = row.transaction > NONE and state.payments[row.transaction - 1].look == Look.NEAR
            told = NONE if doubted else state.told
            state = state._replace(row=row._replace(state=JournalState.UNKNOWN, known=()), told=told)
        return state.ended(index)

    def _search(self, state: State, index: int) -> Steps:
        call, name = state.calls[index], f"call {index + 1} searches"
        assert call.saw is not None
        is_unresolved = call.saw.state in {JournalState.SENDING, JournalState.UNKNOWN}
        # A call that searches for a payout has read a row without a transaction.
        exact, near = (state.looking(look, also_known=self._is_payout) for look in (Look.EXACT, Look.NEAR))
        found = proof(self._kind, exact, near if self._rules.near_match_blocks or is_unresolved else ())
        if found is Proof.MADE:
            for number in exact:
                state = self.statements.accepted(state, number, state.payments[number - 1].stage)
            state = state.ended(index) if self._is_payout else state.put(index, call.again())
        elif found is Proof.UNRESOLVED:
            state = self.statements.sighted(state, index).ended(index)
        else:
            state = state.put(index, call.again()._replace(searched=call.saw))
        yield f"{name}: {found.name}", state

    def _told(self, state: State, index: int) -> State:
        call = state.calls[index]
        state = self.statements.accepted(state, call.number, call.stage)
        passed = (*call.passed, call.number) if call.stage is Stage.OPEN else call.passed
        blocks = call.stage is Stage.OPEN and not self._world.abandons
        return state.ended(index) if blocks else state.put(index, call.again()._replace(passed=passed))

    def _begin(self, state: State, index: int) -> Steps:
        name, call = f"call {index + 1}", state.calls[index]
        begun = self.statements.begun(state, index)
        if begun is None:
            yield f"{name} may not begin", state.put(index, call.again())
        else:
            yield f"{name} commits SENDING", begun.put(index, call._replace(at="fence"))
        if not call.delayed:
            undone = "undo" if self._is_payout else "record"
            then = undone if self._rules.commit_before_send else "fence"
            undo = call._replace(at=then, delayed=True, outcome=JournalState.NOT_SENT)
            yield f"{name} gives up its begin statement, which the database still has", state.put(index, undo)

    def _fence(self, state: State, index: int) -> Steps:
        name, call = f"call {index + 1}", state.calls[index]
        stopped = state.put(index, call._replace(at="record", outcome=JournalState.NOT_SENT))
        is_late = call.key and state.calls[call.key - 1].phase >= Phase.EXPIRED and self._rules.resend_in_time
        if is_late or (self._rules.fence_before_body and call.phase >= Phase.LATE):
            yield f"{name} sends nothing, because its deadline has passed", stopped
        elif self._rules.reread_row_after_a_second and call.phase > Phase.FRESH and not _owns(state, index):
            yield f"{name} sends nothing, because its row is no longer its own", stopped
        elif self._world.check_and_write_are_one:
            yield f"{name} writes the body", self._written(state, index)
        else:
            yield f"{name} has checked its row and its deadline", state.put(index, call._replace(at="write"))
        yield f"{name} cannot connect, or is cancelled", stopped

    def _written(self, state: State, index: int) -> State:
        call, broken = state.calls[index], None
        if self._is_payout and call.phase >= Phase.OLDER and not _owns(state, index):
            broken = "a body was written for a row that another call may send"
        others = [other for number, other in enumerate(state.calls) if number != index and other.in_flight]
        if not self._is_payout and (others or state.unknown):
            broken = "A prompt was sent while an earlier one was in doubt"
        return state.put(index, call._replace(at="answer", in_flight=True))._replace(broken=broken)

    def answered(self, state: State, index: int) -> Steps:
        """Yield what the service may answer to a payout that it executed, besides the truth."""
        name = f"the service executes the request of call {index + 1}"
        answer = state.calls[index]._replace(at="record", in_flight=False)
        unclear = JournalState.UNKNOWN if self._rules.unknown_code_is_unclear else JournalState.REFUSED
        yield f"{name}, and refuses it with an unknown code", state.put(index, answer._replace(outcome=unclear))
        other = answer._replace(outcome=JournalState.ACCEPTED, number=FOREIGN)
        if self._rules.acceptance_compared:
            other = answer._replace(outcome=JournalState.UNKNOWN)
        yield f"{name}, and answers with another payment", state.put(index, other)
        bare = answer._replace(outcome=JournalState.ACCEPTED, number=HELD)
        yield f"{name}, and answers with nothing but the id of another row", state.put(index, bare)
        if not self._world.answers_name_their_payment:
            bare = bare._replace(number=FOREIGN)
            yield f"{name}, and answers with nothing but the id of another payment", state.put(index, bare)


def _owns(state: State, index: int) -> bool:
    """Return whether the row is in SENDING by this call."""
    return state.row is not None and state.row.claim == index + 1 and state.row.state is JournalState.SENDING
