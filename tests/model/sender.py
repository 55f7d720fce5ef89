"""The steps of a call of ``pay_once``: read the row, search, begin, check, write, record."""

from __future__ import annotations

from collections.abc import Iterator

from model.payouts import EXACT, FOREIGN, FRESH, HELD, LATE, NEAR, NONE, OLDER, PAYOUT, Call, Row, State
from model.rules import PayoutRules, World
from momopay.journal.entries import JournalState
from momopay.journal.rules import Cause, Proof, Stage, Step, may_follow, next_step, proof

SENDING, ACCEPTED, REFUSED, NOT_SENT, UNKNOWN = (
    JournalState.SENDING,
    JournalState.ACCEPTED,
    JournalState.REFUSED,
    JournalState.NOT_SENT,
    JournalState.UNKNOWN,
)

Steps = Iterator[tuple[str, State]]


class Sender:
    """All calls of one world, under one set of rules."""

    def __init__(self, rules: PayoutRules, world: World) -> None:
        self._rules = rules
        self._world = world
        # What a broken rule lets a call send besides what the code's own table allows.
        self._also_sent = {
            state
            for state, kept in (
                (SENDING, rules.sending_blocks),
                (ACCEPTED, rules.accepted_blocks),
                (UNKNOWN, rules.absence_is_no_proof),
            )
            if not kept
        }

    def steps(self, state: State, index: int) -> Steps:
        """Yield what a call may do next, and how everything is then."""
        call = state.calls[index]
        if call.at == "end":
            return
        match call.at:
            case "read":
                yield from self._read(state, index)
            case "search":
                yield from self._search(state, index)
            case "begin":
                yield from self._begin(state, index)
            case "fence":
                yield from self._fence(state, index)
            case "write":
                yield f"call {index + 1} writes the body", self._written(state, index)
            case "answer":
                unclear = UNKNOWN if self._rules.timeout_is_unclear else NOT_SENT
                yield (
                    f"call {index + 1} gets no answer in time",
                    put(state, index, call._replace(at="record", outcome=unclear)),
                )
            case "contradict":
                yield self._contradict(state, index)
            case _:
                yield self._record(state, index)
        # A call that dies before it wrote anything is a call that was never made.
        if call.at in {"fence", "write", "answer", "undo", "record"}:
            yield f"the process of call {index + 1} dies", ended(state, index)

    def started(self, state: State) -> Steps:
        """Yield what a new call may do first: it reads the row."""
        index = len(state.calls)
        started = state._replace(calls=(*state.calls, Call()), waiting=state.waiting - 1)
        for label, after in self._read(started, index):
            # A call that changes nothing and ends is one that was never made.
            if after.calls[index].at != "end" or after._replace(calls=state.calls, waiting=state.waiting) != state:
                yield label, after

    def _read(self, state: State, index: int) -> Steps:
        name, row = f"call {index + 1} reads", state.row
        read = None if row is None else row.state
        # A live sender may look dead, so a row in SENDING is read both ways. Waiting changes nothing.
        stages = [Stage.OPEN] if read is ACCEPTED else []
        step = Step.RECONCILE if read is SENDING else next_step(PAYOUT, read, stages, attempts=1)
        if read in self._also_sent:
            step = Step.SEARCH_THEN_SEND
        claim = 0 if row is None else row.claim
        match step:
            case Step.SEND:
                yield f"{name} no row", put(state, index, Call("begin"))
            case Step.SEARCH_THEN_SEND:
                then = "search" if self._rules.search_before_resend else "begin"
                yield f"{name} {read}", put(state, index, Call(then, saw=claim))
            case Step.READ:
                yield from self._verify(state, index)
            case _:
                found = proof(PAYOUT, *_matches(state))
                after = accepted(state, state.payments.index(EXACT) + 1) if found is Proof.MADE else state
                yield f"{name} {read} and searches: {found.name}", ended(after, index)

    def _verify(self, state: State, index: int) -> Steps:
        row, name = state.row, f"call {index + 1} reads ACCEPTED, then the transaction"
        assert row is not None
        foreign = row.transaction < NONE
        if not foreign and state.payments[row.transaction - 1] != NEAR:
            yield name, ended(state, index)
        elif self._rules.later_read_compared:
            doubted = state.calls[index]._replace(at="contradict", transaction=row.transaction)
            yield f"{name}, which differs", put(state, index, doubted)
        else:
            broken = "pay_once returned the transaction of another payment" if foreign else None
            yield f"{name}, which differs", ended(state, index)._replace(broken=broken)

    def _contradict(self, state: State, index: int) -> tuple[str, State]:
        row, label = state.row, f"call {index + 1} records that the transaction is another payment"
        assert row is not None
        same = row.transaction == state.calls[index].transaction or not self._rules.contradiction_compares_the_id
        if same and may_follow(PAYOUT, Cause.CONTRADICTION, row.state, UNKNOWN):
            # The list may show the payment itself with another amount. Then the true acceptance is doubted, too.
            doubted = row.transaction > NONE and state.payments[row.transaction - 1] == NEAR
            told = state.told and not doubted
            state = state._replace(row=row._replace(state=UNKNOWN), told=told)
        return label, ended(state, index)

    def _search(self, state: State, index: int) -> Steps:
        name, row, call = f"call {index + 1} searches", state.row, state.calls[index]
        exact, near = _matches(state)
        found = proof(PAYOUT, exact, near if self._rules.near_match_blocks else ())
        if found is Proof.ABSENT:
            yield f"{name}: {found.name}", put(state, index, call._replace(at="begin"))
        elif found is Proof.MADE:
            yield f"{name}: {found.name}", ended(accepted(state, state.payments.index(EXACT) + 1), index)
        else:
            assert row is not None
            if row.claim == call.saw and may_follow(PAYOUT, Cause.SIGHTING, row.state, UNKNOWN):
                seen = UNKNOWN if self._rules.sighting_recorded else row.state
                state = state._replace(row=row._replace(state=seen), wrong=False)
            yield f"{name}: {found.name}", ended(state, index)

    def _begin(self, state: State, index: int) -> Steps:
        name, call = f"call {index + 1}", state.calls[index]
        begun = self.begun(state, index)
        if begun is None:
            yield f"{name} may not begin", put(state, index, Call())
        else:
            yield f"{name} commits SENDING", put(begun, index, call._replace(at="fence"))
        if not call.delayed:
            then = "undo" if self._rules.commit_before_send else "fence"
            undo = call._replace(at=then, delayed=True, outcome=NOT_SENT)
            yield f"{name} gives up its begin statement, which the database still has", put(state, index, undo)

    def begun(self, state: State, index: int) -> State | None:
        """Return the state after a call's begin statement, None if it changes nothing."""
        row, call = state.row, state.calls[index]
        before = None if row is None else row.state
        if self._rules.begin_is_conditional:
            if not may_follow(PAYOUT, Cause.BEGIN, before, SENDING) and before not in self._also_sent:
                return None
            if self._rules.begin_needs_the_row_it_read and (0 if row is None else row.claim) != call.saw:
                return None
        return state._replace(row=Row(SENDING, index + 1))

    def _fence(self, state: State, index: int) -> Steps:
        name, call, row = f"call {index + 1}", state.calls[index], state.row
        stopped = put(state, index, call._replace(at="record", outcome=NOT_SENT))
        own = row is not None and row.claim == index + 1 and row.state is SENDING
        if self._rules.fence_before_body and call.phase >= LATE:
            yield f"{name} sends nothing, because its deadline has passed", stopped
        elif self._rules.reread_row_after_a_second and call.phase > FRESH and not own:
            yield f"{name} sends nothing, because its row is no longer its own", stopped
        elif self._world.check_and_write_are_one:
            yield f"{name} writes the body", self._written(state, index)
        else:
            yield f"{name} has checked its row and its deadline", put(state, index, call._replace(at="write"))
        yield f"{name} cannot connect, or is cancelled", stopped

    def _written(self, state: State, index: int) -> State:
        call, row = state.calls[index], state.row
        own = row is not None and row.claim == index + 1 and row.state is SENDING
        broken = None if own or call.phase < OLDER else "a body was written for a row that another call may send"
        return put(state, index, call._replace(at="answer", in_flight=True))._replace(broken=broken)

    def _record(self, state: State, index: int) -> tuple[str, State]:
        call, row = state.calls[index], state.row
        outcome, after = call.outcome, state
        assert outcome is not None
        label = f"call {index + 1} records {outcome}"
        own = row is not None and row.claim == index + 1
        if outcome is ACCEPTED and call.transaction > NONE:
            if own or self._rules.acceptance_overrides:
                after = accepted(state, call.transaction)
            elif row is not None and row.state is not ACCEPTED:
                after = state._replace(told=True)
        elif row is None:
            pass
        elif outcome is ACCEPTED:
            label = f"{label} as transaction {_name(call.transaction)}"
            if self._rules.transaction_has_one_row and call.transaction == HELD:
                if own and may_follow(PAYOUT, Cause.OUTCOME, row.state, UNKNOWN):
                    after = state._replace(row=row._replace(state=UNKNOWN))
            else:
                after = accepted(state, call.transaction)
        else:
            needs_claim = self._rules.undo_needs_the_claim if call.at == "undo" else self._rules.outcome_needs_the_claim
            open_row = may_follow(PAYOUT, Cause.OUTCOME, row.state, outcome)
            if (own or not needs_claim) and (open_row or not self._rules.outcome_needs_an_open_row):
                after = state._replace(row=row._replace(state=outcome, transaction=NONE))
        return label, ended(after, index)


def put(state: State, index: int, call: Call) -> State:
    """Return the state with a call changed."""
    return state._replace(calls=(*state.calls[:index], call, *state.calls[index + 1 :]))


def ended(state: State, index: int) -> State:
    """Return the state after a call ended: only what may still arrive of it is left."""
    call = state.calls[index]
    saw = call.saw if call.delayed else 0
    return put(state, index, Call("end", call.phase, saw, call.delayed, call.in_flight))


def accepted(state: State, transaction: int) -> State:
    """Return the state after an acceptance was recorded, whatever the row said."""
    row = state.row
    if row is None or row.state is ACCEPTED or not may_follow(PAYOUT, Cause.ACCEPTANCE, row.state, ACCEPTED):
        return state
    told = state.told or transaction > NONE
    return state._replace(row=row._replace(state=ACCEPTED, transaction=transaction), told=told)


def _matches(state: State) -> tuple[list[int], list[int]]:
    return [n for n in state.payments if n == EXACT], [n for n in state.payments if n == NEAR]


def _name(transaction: int) -> str:
    return {HELD: "of another row", FOREIGN: "of another payment"}.get(transaction, str(transaction))
