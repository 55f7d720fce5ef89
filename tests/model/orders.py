"""One order as the model sees it, what must hold of it, and the statements of the journal that change its row."""

from __future__ import annotations

from typing import Final, NamedTuple

from model.payouts import EXACT, HIDDEN
from model.rules import OrderRules, OrderWorld
from model.sender import ACCEPTED, NOT_SENT, SENDING, UNKNOWN
from momopay.journal.entries import EntryKind, JournalState
from momopay.journal.rules import Cause, Stage, may_follow

ORDER: Final = EntryKind.COLLECTION

NOBODY: Final = 0


class Prompt(NamedTuple):
    """A prompt on the customer's phone. `swept`: ten minutes after its end have passed, and a sweep."""

    stage: Stage = Stage.OPEN
    look: int = HIDDEN
    swept: bool = False


class Row(NamedTuple):
    """The journal's row of the order, and its known prompts, each with its number and how far it came."""

    state: JournalState
    claim: int
    attempts: int = 1
    known: tuple[tuple[int, Stage], ...] = ()

    @property
    def stages(self) -> list[Stage]:
        """How far each known prompt came."""
        return [stage for _, stage in self.known]


class Call(NamedTuple):
    """A call of ``collect_once``: the step that comes next, and what it needs.

    `saw`: the row as it was read; whatever changes it, the call must decide anew. `passed`: the prompts that are open
    and abandoned. `stage` is what the service said of `prompt`.
    """

    at: str = "read"
    saw: Row | None = None
    passed: tuple[int, ...] = ()
    delayed: bool = False
    in_flight: bool = False
    outcome: JournalState | None = None
    prompt: int = NOBODY
    stage: Stage = Stage.OPEN


class Order(NamedTuple):
    """Everything that matters for what may happen next.

    `paid` is the prompt that the journal first recorded as paid. `wrong`: a release was wrong, and the journal has
    not learned of that prompt yet.
    """

    row: Row | None
    calls: tuple[Call, ...]
    waiting: int
    prompts: tuple[Prompt, ...]
    paid: int = NOBODY
    wrong: bool = False
    broken: str | None = None

    @property
    def unknown(self) -> list[int]:
        """The prompts of which the journal does not know."""
        known = dict(self.row.known) if self.row else {}
        return [number for number in range(1, len(self.prompts) + 1) if number not in known]


class Statements:
    """What the journal does to a row, under one set of rules."""

    def __init__(self, rules: OrderRules) -> None:
        self._rules = rules
        # What a broken rule lets a call send besides what the code's own table allows.
        broken = ((SENDING, rules.sending_blocks), (UNKNOWN, rules.absence_is_no_proof))
        self._also_sent = {state for state, kept in broken if not kept}

    def begun(self, order: Order, index: int) -> Order | None:
        """Return the order after a call's begin statement, None if it changes nothing."""
        row, rules, saw = order.row, self._rules, order.calls[index].saw
        if row is None:
            return order._replace(row=Row(SENDING, index + 1))
        if rules.begin_is_conditional:
            if saw is None or not (may_follow(ORDER, Cause.BEGIN, row.state, SENDING) or row.state in self._also_sent):
                return None
            if rules.begin_needs_the_row_it_read and saw != row:
                return None
        return order._replace(row=Row(SENDING, index + 1, row.attempts + 1, row.known))

    def recorded(self, order: Order, index: int) -> Order:
        """Return the order after a call recorded that it sent nothing, was refused, or does not know."""
        row, outcome, rules = order.row, order.calls[index].outcome, self._rules
        assert outcome is not None
        if row is None or (row.claim != index + 1 and rules.outcome_needs_the_claim):
            return order
        if not may_follow(ORDER, Cause.OUTCOME, row.state, outcome) and rules.outcome_needs_an_open_row:
            return order
        attempts = row.attempts - (outcome is NOT_SENT)
        return order._replace(row=row._replace(state=outcome, attempts=attempts))

    def accepted(self, order: Order, number: int, stage: Stage, sender: int = NOBODY) -> Order:
        """Return the order after a record of the service was written; `sender` is the call whose own answer it is."""
        row = order.row
        assert row is not None
        known = dict(row.known)
        # The answer of an earlier attempt only adds its prompt; so does what is known already.
        is_latest = number not in known and sender in {NOBODY, row.claim}
        is_latest |= not self._rules.known_prompt_keeps_a_later_attempt
        before = known.get(number, Stage.OPEN)
        known[number] = max(before, stage) if self._rules.status_moves_forward else stage
        row = row._replace(known=tuple(sorted(known.items())), state=ACCEPTED if is_latest else row.state)
        paid = order.paid or (number if known[number] is Stage.PAID else NOBODY)
        order = order._replace(row=row, paid=paid)
        return order._replace(wrong=order.wrong and bool(order.unknown))

    def swept(self, order: Order) -> Order:
        """Return the order after a sweep: prompts in doubt are searched for, open ones are read."""
        row = order.row
        if row is None:
            return order
        if row.state in {SENDING, UNKNOWN} and self._rules.sweep_searches:
            for number in order.unknown:
                if order.prompts[number - 1].look == EXACT:
                    order = self.accepted(order, number, order.prompts[number - 1].stage)
        for number, stage in row.known:
            if stage is Stage.OPEN and (self._rules.sweep_reads_open_prompts or number == row.known[-1][0]):
                order = self.accepted(order, number, order.prompts[number - 1].stage)
        return order


def violation_in(order: Order, world: OrderWorld, statements: Statements) -> str | None:
    """Return which property does not hold, None if all do."""
    return order.broken or _of_the_customer(order, world) or _of_the_journal(order, world, statements)


def _of_the_customer(order: Order, world: OrderWorld) -> str | None:
    stages = [prompt.stage for prompt in order.prompts]
    if stages.count(Stage.OPEN) > 1 and not world.abandons:
        return "The customer has TWO OPEN PROMPTS"
    if stages.count(Stage.PAID) > 1 and not (world.late_pin or world.abandons):
        return "PAID TWICE"
    return None


def _of_the_journal(order: Order, world: OrderWorld, statements: Statements) -> str | None:
    row = order.row
    if row is None:
        return "PROMPTED, and the journal says nothing" if order.prompts else None
    if order.paid and dict(row.known).get(order.paid) is not Stage.PAID:
        return "The journal knew that the order is paid, and no longer says so"
    in_doubt = row.state in {SENDING, UNKNOWN} or order.wrong
    if order.unknown and not in_doubt:
        return f"PROMPTED, and the journal says {row.state}"
    if row.state is UNKNOWN and row.attempts <= len(row.known):
        return "UNKNOWN, and every attempt's prompt is known"
    if _is_at_rest(order, world):
        known = dict((statements.swept(order).row or row).known)
        paid = [number for number, prompt in enumerate(order.prompts, 1) if prompt.stage is Stage.PAID]
        if any(known.get(number) is not Stage.PAID for number in paid):
            return "PAID, and the journal does not say so after a sweep"
    return None


def _is_at_rest(order: Order, world: OrderWorld) -> bool:
    """Return whether nothing but a sweep is left to happen."""
    if order.wrong or any(call.at != "end" or call.delayed or call.in_flight for call in order.calls):
        return False
    known = dict(order.row.known) if order.row is not None and world.late_pin else dict[int, Stage]()
    return all(
        prompt.look == EXACT
        and prompt.stage is not Stage.OPEN
        and (prompt.swept or known.get(number) is not Stage.ENDED)
        for number, prompt in enumerate(order.prompts, 1)
    )
