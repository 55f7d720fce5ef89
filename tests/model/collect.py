"""One order: a number of calls of ``collect_once``, the journal's row, the service and its customer.

``collect_once`` is not built yet. Its rules are those of the design, so all transitions here are the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from model.sender import ACCEPTED, NOT_SENT, REFUSED, SENDING, UNKNOWN
from momopay.journal.entries import JournalState

# The status of a prompt. What the journal knows of it only moves upwards.
OPEN: Final = 0
ENDED: Final = 1  # without success
PAID: Final = 2
STATUS: Final = ("open", "ended", "paid")


@dataclass(frozen=True)
class CollectRules:
    """What ``collect_once`` and the journal do. A rule that is False is broken."""

    commit_before_send: bool = True
    """A prompt is sent only after its row was committed as SENDING."""
    begin_is_conditional: bool = True
    """The database decides whether the row may become SENDING, whatever the call read before."""
    sending_blocks: bool = True
    """A row in SENDING is never sent by a second call."""
    unknown_blocks: bool = True
    """A row in UNKNOWN is not sent because a search did not find its prompt."""
    open_prompt_blocks: bool = True
    """An open prompt is returned, and no second one is sent (``abandon_after`` turns this off after a time)."""
    paid_blocks: bool = True
    """A paid order is returned for ever."""
    known_prompts_excluded: bool = True
    """A search for a prompt in doubt ignores the order's earlier prompts, which have the same reference."""
    acceptance_keeps_a_later_attempt: bool = True
    """A late answer or callback of an earlier prompt changes nothing of the attempt that is under way."""
    outcome_needs_the_claim: bool = True
    """A call records how it ended only in a row that still has its claim."""
    timeout_is_unclear: bool = True
    """A request without an answer is recorded as UNKNOWN."""
    status_moves_forward: bool = True
    """What the journal knows of a prompt is never replaced by an older read."""
    ended_prompt_read_again: bool = True
    """A sweep reads a prompt that ended without success once more, ten minutes later."""


class Prompt(NamedTuple):
    """A prompt on the customer's phone. `swept`: a sweep has read its end once more."""

    status: int = OPEN
    shown: bool = False
    swept: bool = False


class Row(NamedTuple):
    """The journal's row. `known`: number and status of each prompt, in order; `current`: the number of the latest."""

    state: JournalState
    claim: int
    known: tuple[tuple[int, int], ...] = ()
    current: int = 0


class Call(NamedTuple):
    """A call of ``collect_once``: the step that comes next, and what it needs."""

    at: str = "read"
    delayed: bool = False
    in_flight: bool = False
    outcome: JournalState | None = None
    prompt: int = 0
    status: int = OPEN


class Order(NamedTuple):
    """Everything that matters for what may happen next."""

    row: Row | None
    calls: tuple[Call, ...]
    waiting: int
    prompts: tuple[Prompt, ...]
    paid: bool = False  # the journal has recorded it


Steps = Iterator[tuple[str, Order]]


class Collector:
    """All calls for one order, under one set of rules. `late_pin`: a prompt that ended may still be paid."""

    def __init__(self, rules: CollectRules, *, late_pin: bool = False) -> None:
        self._rules = rules
        self._late_pin = late_pin

    def steps(self, order: Order) -> Steps:
        """Yield everything that may happen next."""
        if order.waiting and sum(call.at != "end" for call in order.calls) < 2:
            yield from self._started(order)
        for index, call in enumerate(order.calls):
            yield from self._call(order, index, call)
            if call.delayed:
                begun = self._begun(order, index)
                label = f"the delayed begin statement of call {index + 1} " + (
                    "commits" if begun else "changes nothing"
                )
                yield label, _put(begun or order, index, call._replace(delayed=False))
            if call.in_flight:
                yield from self._service(order, index, call)
        for number, prompt in enumerate(order.prompts, 1):
            yield from self._customer(order, number, prompt)
        # A person releases only what was certainly never made.
        row = order.row
        if row and row.state in {SENDING, UNKNOWN} and not order.calls[row.claim - 1].in_flight:
            sent = order.calls[row.claim - 1].at not in {"fence", "answer", "record"}
            if sent and len(row.known) == len(order.prompts):
                yield "a person releases the row", order._replace(row=row._replace(state=NOT_SENT))

    def _call(self, order: Order, index: int, call: Call) -> Steps:
        name = f"call {index + 1}"
        match call.at:
            case "end":
                return
            case "read":
                yield from self._read(order, index)
            case "tell":
                label = f"{name} records that prompt {call.prompt} is {STATUS[call.status]}"
                yield label, self._after_status(self._told(order, call.prompt, call.status), index)
            case "begin":
                begun = self._begun(order, index)
                if begun is None:
                    yield f"{name} may not begin", _put(order, index, Call())
                else:
                    yield f"{name} commits SENDING", _put(begun, index, call._replace(at="fence"))
                then = "record" if self._rules.commit_before_send else "fence"
                if not call.delayed:
                    gives_up = call._replace(at=then, delayed=True, outcome=NOT_SENT)
                    yield f"{name} gives up its begin statement", _put(order, index, gives_up)
            case "fence":
                yield f"{name} writes the body", _put(order, index, call._replace(at="answer", in_flight=True))
                yield f"{name} cannot connect", _put(order, index, call._replace(at="record", outcome=NOT_SENT))
            case "answer":
                unclear = UNKNOWN if self._rules.timeout_is_unclear else NOT_SENT
                yield f"{name} gets no answer", _put(order, index, call._replace(at="record", outcome=unclear))
            case _:
                yield self._record(order, index, call)
        if call.at in {"fence", "answer", "record"}:
            yield f"the process of {name} dies", _end(order, index)

    def _started(self, order: Order) -> Steps:
        index = len(order.calls)
        started = order._replace(calls=(*order.calls, Call()), waiting=order.waiting - 1)
        for label, after in self._read(started, index):
            # A call that changes nothing and ends is one that was never made.
            if after.calls[index].at != "end" or after._replace(calls=order.calls, waiting=order.waiting) != order:
                yield label, after

    def _read(self, order: Order, index: int) -> Steps:
        row, rules, name = order.row, self._rules, f"call {index + 1} reads"
        if row is None:
            yield f"{name} no row", _put(order, index, Call("begin"))
            return
        told = [status for _, status in row.known]
        if PAID in told and rules.paid_blocks:
            yield f"{name} that the order is paid", _end(order, index)
        elif row.state in {SENDING, UNKNOWN}:
            blocks = rules.sending_blocks if row.state is SENDING else rules.unknown_blocks
            known = {number for number, _ in row.known} if rules.known_prompts_excluded else set[int]()
            found = [n for n, prompt in enumerate(order.prompts, 1) if prompt.shown and n not in known]
            if len(found) == 1:
                yield f"{name} {row.state}, and finds prompt {found[0]}", _end(self._found(order, found[0]), index)
            elif not blocks:
                yield f"{name} {row.state}, and finds nothing", _put(order, index, Call("begin"))
            # Else it raises, which changes nothing.
        elif row.state is ACCEPTED:
            status = order.prompts[row.current - 1].status
            tell = Call("tell", prompt=row.current, status=status)
            yield f"{name} ACCEPTED, and that prompt {row.current} is {STATUS[status]}", _put(order, index, tell)
        else:
            yield f"{name} {row.state}", _put(order, index, Call("begin"))

    def _after_status(self, order: Order, index: int) -> Order:
        call = order.calls[index]
        blocks = {OPEN: self._rules.open_prompt_blocks, PAID: self._rules.paid_blocks, ENDED: False}[call.status]
        return _end(order, index) if blocks else _put(order, index, Call("begin"))

    def _begun(self, order: Order, index: int) -> Order | None:
        """Return the order after a call's begin statement, None if it changes nothing."""
        row, rules = order.row, self._rules
        if row is None:
            return order._replace(row=Row(SENDING, index + 1))
        told = {status for _, status in row.known}
        blocked = (
            (row.state is SENDING and rules.sending_blocks)
            or (row.state is UNKNOWN and rules.unknown_blocks)
            or (OPEN in told and rules.open_prompt_blocks)
            or (PAID in told and rules.paid_blocks)
        )
        if blocked and rules.begin_is_conditional:
            return None
        return order._replace(row=Row(SENDING, index + 1, row.known))

    def _record(self, order: Order, index: int, call: Call) -> tuple[str, Order]:
        row, outcome = order.row, call.outcome
        label = f"call {index + 1} records {outcome}"
        own = row is not None and (row.claim == index + 1 or not self._rules.outcome_needs_the_claim)
        if outcome is ACCEPTED:
            order = self._found(order, call.prompt)
        elif row is not None and own and row.state is SENDING:
            assert outcome is not None
            order = order._replace(row=row._replace(state=outcome))
        return label, _end(order, index)

    def _found(self, order: Order, number: int) -> Order:
        """Return the order after the service's own record showed a prompt."""
        row = order.row
        assert row is not None
        known = number in {each for each, _ in row.known}
        if known and self._rules.acceptance_keeps_a_later_attempt and self._rules.known_prompts_excluded:
            return order
        numbers = row.known if known else (*row.known, (number, OPEN))
        return order._replace(row=row._replace(state=ACCEPTED, known=numbers, current=number))

    def _told(self, order: Order, number: int, status: int) -> Order:
        row = order.row
        assert row is not None
        forward = self._rules.status_moves_forward
        known = tuple(
            (each, max(before, status) if forward else status) if each == number else (each, before)
            for each, before in row.known
        )
        return order._replace(row=row._replace(known=known), paid=order.paid or status == PAID)

    def _service(self, order: Order, index: int, call: Call) -> Steps:
        name, call = f"the request of call {index + 1}", call._replace(in_flight=False)
        opened = order._replace(prompts=(*order.prompts, Prompt()))
        yield f"{name} opens a prompt, and its answer is lost", _put(opened, index, call)
        yield f"{name} never arrives", _put(order, index, call)
        if call.at == "answer":
            accepted = call._replace(at="record", outcome=ACCEPTED, prompt=len(opened.prompts))
            yield f"{name} opens a prompt", _put(opened, index, accepted)
            yield f"{name} is refused", _put(order, index, call._replace(at="record", outcome=REFUSED))

    def _customer(self, order: Order, number: int, prompt: Prompt) -> Steps:
        def becomes(changed: Prompt) -> Order:
            return order._replace(prompts=(*order.prompts[: number - 1], changed, *order.prompts[number:]))

        if not prompt.shown:
            yield f"the list shows prompt {number}", becomes(prompt._replace(shown=True))
        if prompt.status == OPEN:
            yield f"the customer cancels prompt {number}", becomes(prompt._replace(status=ENDED))
        if prompt.status == OPEN or (prompt.status == ENDED and self._late_pin and not prompt.swept):
            yield f"the customer pays prompt {number}", becomes(prompt._replace(status=PAID))
        known = dict(order.row.known) if order.row is not None else {}
        if prompt.status != OPEN and order.row is not None:
            told = self._told(self._found(order, number), number, prompt.status)
            yield f"a callback says that prompt {number} is {STATUS[prompt.status]}", told
        if self._late_pin and known.get(number) == ENDED and not prompt.swept:
            swept = becomes(prompt._replace(swept=True))
            if self._rules.ended_prompt_read_again:
                swept = self._told(swept, number, prompt.status)
            yield f"ten minutes after the end of prompt {number} have passed, with a sweep", swept


def violation_in(order: Order, *, late_pin: bool = False) -> str | None:
    """Return which property does not hold, None if all do."""
    row = order.row
    statuses = [prompt.status for prompt in order.prompts]
    told = dict(row.known) if row else {}
    if statuses.count(OPEN) > 1:
        return "The customer has TWO OPEN PROMPTS"
    if statuses.count(PAID) > 1 and not late_pin:
        return "PAID TWICE"
    if order.paid and PAID not in told.values():
        return "The journal knew that the order is paid, and no longer says so"
    in_doubt = row is not None and (row.state in {SENDING, UNKNOWN} or OPEN in told.values())
    if PAID in statuses and not late_pin and PAID not in told.values() and not in_doubt:
        return "PAID, and the journal says that it is not"
    for number, prompt in enumerate(order.prompts, 1):
        if prompt.status == PAID and prompt.swept and told.get(number) != PAID:
            return f"Prompt {number} was PAID, and the journal does not say so after its last sweep"
    return None


def _put(order: Order, index: int, call: Call) -> Order:
    return order._replace(calls=(*order.calls[:index], call, *order.calls[index + 1 :]))


def _end(order: Order, index: int) -> Order:
    call = order.calls[index]
    return _put(order, index, Call("end", call.delayed, call.in_flight))
