"""What the journal's statements do to the row, under one set of rules."""

from __future__ import annotations

from model.rules import Rules, World, may_follow
from model.state import ACCEPTED, EXACT, HELD, NONE, NOT_SENT, SENDING, UNKNOWN, Row, State
from momopay.journal.entries import EntryKind
from momopay.journal.rules import Cause
from momopay.models.enums import Stage


class Statements:
    """The statements for one kind of payment."""

    def __init__(self, rules: Rules, world: World) -> None:
        self._rules = rules
        self._kind = world.kind
        self._is_payout = world.kind is EntryKind.PAYOUT
        # What a broken rule lets a call send besides what the code's own table allows.
        broken = (
            (SENDING, rules.sending_blocks),
            (ACCEPTED, rules.open_blocks or not self._is_payout),
            (UNKNOWN, rules.absence_is_no_proof),
        )
        self._also_sent = {state for state, kept in broken if not kept}

    def begun(self, state: State, index: int) -> State | None:
        """Return the state after a call's begin statement, None if it changes nothing."""
        row, rules, saw = state.row, self._rules, state.calls[index].saw
        if rules.begin_is_conditional:
            before = None if row is None else row.state
            if not may_follow(self._kind, Cause.BEGIN, before, SENDING) and before not in self._also_sent:
                return None
            if rules.begin_needs_the_row_it_read and saw != row:
                return None
        if row is None or self._is_payout:
            return state._replace(row=Row(SENDING, index + 1))
        return state._replace(row=Row(SENDING, index + 1, row.attempts + 1, row.known))

    def recorded(self, state: State, index: int) -> State:
        """Return the state after a call recorded how it ended."""
        call, row, rules = state.calls[index], state.row, self._rules
        assert call.outcome is not None
        if row is None:
            return state
        own = row.claim == index + 1
        if call.outcome is ACCEPTED and (call.number != HELD or not rules.transaction_has_one_row):
            if own or call.number < NONE or rules.acceptance_overrides:
                return self.accepted(state, call.number, sender=index + 1)
            return state if row.state is ACCEPTED else state._replace(told=state.told or call.number)
        needs_claim = rules.undo_needs_the_claim if call.at == "undo" else rules.outcome_needs_the_claim
        is_held = call.outcome is ACCEPTED  # another row has the id
        outcome = UNKNOWN if is_held else call.outcome
        fits = may_follow(self._kind, Cause.OUTCOME, row.state, outcome)
        fits |= not (is_held or rules.outcome_needs_an_open_row)
        if not fits or (not own and (needs_claim or is_held)):
            return state
        if self._is_payout:
            return state._replace(row=Row(outcome, row.claim))
        return state._replace(row=row._replace(state=outcome, attempts=row.attempts - (outcome is NOT_SENT)))

    def accepted(self, state: State, number: int, stage: Stage = Stage.OPEN, *, sender: int = NONE) -> State:
        """Return the state after a record of the service was written; `sender` is the call whose answer it is."""
        row = state.row
        if row is None:
            return state
        if self._is_payout:
            if row.state is ACCEPTED or not may_follow(self._kind, Cause.ACCEPTANCE, row.state, ACCEPTED):
                return state
            row = row._replace(state=ACCEPTED, known=((number, stage),))
            return state._replace(row=row, told=state.told or max(number, NONE))
        known = dict(row.known)
        # The answer of an earlier attempt only adds its prompt; so does what is known already.
        is_latest = number not in known and sender in {NONE, row.claim}
        is_latest |= not self._rules.known_prompt_keeps_a_later_attempt
        before = known.get(number, Stage.OPEN)
        known[number] = max(before, stage) if self._rules.status_moves_forward else stage
        row = row._replace(known=tuple(sorted(known.items())), state=ACCEPTED if is_latest else row.state)
        told = state.told or (number if known[number] is Stage.PAID else NONE)
        state = state._replace(row=row, told=told)
        return state._replace(wrong=state.wrong and bool(state.unknown))

    def sighted(self, state: State, index: int) -> State:
        """Return the state after a search showed what may be the payment, or several that fit."""
        row, call = state.row, state.calls[index]
        assert row is not None
        same = row.claim == call.saw.claim if self._is_payout and call.saw is not None else row == call.saw
        if not same or not may_follow(self._kind, Cause.SIGHTING, row.state, UNKNOWN):
            return state
        seen = UNKNOWN if self._rules.sighting_recorded else row.state
        return state._replace(row=row._replace(state=seen), wrong=False)

    def swept(self, state: State) -> State:
        """Return the state after a sweep: prompts in doubt are searched for, open ones are read."""
        row = state.row
        if row is None or self._is_payout:
            return state
        if row.state in {SENDING, UNKNOWN} and self._rules.sweep_searches:
            for number in state.looking(EXACT):
                state = self.accepted(state, number, state.payments[number - 1].stage)
        for number, stage in row.known:
            if stage is Stage.OPEN and (self._rules.sweep_reads_open_prompts or number == row.known[-1][0]):
                state = self.accepted(state, number, state.payments[number - 1].stage)
        return state
