"""Calls of ``collect_once`` for one order, the service and its list, the customer, callbacks, the sweep, a person."""

from __future__ import annotations

from collections.abc import Iterator

from model.orders import ORDER, Call, Order, Prompt, Statements
from model.payouts import EXACT, HIDDEN, NEAR
from model.rules import OrderRules, OrderWorld
from model.sender import ACCEPTED, NOT_SENT, REFUSED, SENDING, UNKNOWN
from momopay.journal.rules import Cause, Proof, Stage, Step, may_follow, next_step, proof

Steps = Iterator[tuple[str, Order]]


class Collector:
    """All calls for one order, in one world, under one set of rules."""

    def __init__(self, rules: OrderRules, world: OrderWorld) -> None:
        self._rules = rules
        self._world = world
        self.statements = Statements(rules)

    def steps(self, order: Order) -> Steps:
        """Yield everything that may happen next."""
        if order.waiting and sum(call.at != "end" for call in order.calls) < 2:
            yield from self._started(order)
        for index, call in enumerate(order.calls):
            yield from self._call(order, index, call)
            if call.delayed:
                begun = self.statements.begun(order, index)
                label = f"the delayed begin statement of call {index + 1} " + (
                    "commits" if begun else "changes nothing"
                )
                yield label, _put(begun or order, index, call._replace(delayed=False))
            if call.in_flight:
                yield from self._service(order, index, call)
        for number in range(1, len(order.prompts) + 1):
            yield from self._prompt(order, number)
        swept = self.statements.swept(order)
        if swept != order:
            yield "a sweep reads what is open or in doubt", swept
        yield from self._person(order)

    def _call(self, order: Order, index: int, call: Call) -> Steps:
        name = f"call {index + 1}"
        match call.at:
            case "end":
                return
            case "read":
                yield from self._read(order, index)
            case "search":
                yield from self._search(order, index, to_send=True)
            case "tell":
                label = f"{name} records that prompt {call.prompt} is {call.stage.name}"
                yield label, self._told(order, index)
            case "begin":
                yield from self._begin(order, index)
            case "fence":
                yield f"{name} writes the body", self._written(order, index)
                yield f"{name} cannot connect", _put(order, index, call._replace(at="record", outcome=NOT_SENT))
            case "answer":
                unclear = UNKNOWN if self._rules.timeout_is_unclear else NOT_SENT
                yield f"{name} gets no answer", _put(order, index, call._replace(at="record", outcome=unclear))
            case _:
                after = (
                    self.statements.accepted(order, call.prompt, Stage.OPEN, sender=index + 1)
                    if call.outcome is ACCEPTED
                    else self.statements.recorded(order, index)
                )
                yield f"{name} records {call.outcome}", _end(after, index)
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
        row, rules, name, call = order.row, self._rules, f"call {index + 1} reads", order.calls[index]
        if row is None:
            yield f"{name} no row", _put(order, index, Call("begin"))
            return
        # What a broken rule lets a call overlook.
        overlooked = [
            stage
            for stage, kept in ((Stage.OPEN, rules.open_prompt_blocks), (Stage.PAID, rules.paid_blocks))
            if not kept
        ]
        stages = [Stage.ENDED if stage in overlooked else stage for stage in row.stages]
        state = NOT_SENT if row.state is SENDING and not rules.sending_blocks else row.state
        passed = [index for index, (number, _) in enumerate(row.known) if number in call.passed]
        step = next_step(ORDER, state, stages, row.attempts, passed_over=passed)
        seen = Call("begin", row, call.passed)
        match step:
            case Step.READ if Stage.PAID in stages:
                yield f"{name} that the order is paid", _end(order, index)
            case Step.READ:
                number = next(
                    number for number, stage in row.known if stage is Stage.OPEN and number not in call.passed
                )
                stage = order.prompts[number - 1].stage
                tell = seen._replace(at="tell", prompt=number, stage=stage)
                yield f"{name} {row.state}, and that prompt {number} is {stage.name}", _put(order, index, tell)
            case Step.SEND:
                yield f"{name} {row.state}", _put(order, index, seen)
            case Step.SEARCH_THEN_SEND:
                then = "search" if rules.search_before_resend else "begin"
                yield f"{name} {row.state}", _put(order, index, seen._replace(at=then))
            case _:
                # A live sender may look dead, so a row in SENDING is also searched for.
                yield from self._search(_put(order, index, seen), index, to_send=not rules.absence_is_no_proof)

    def _search(self, order: Order, index: int, *, to_send: bool) -> Steps:
        row, call, name = order.row, order.calls[index], f"call {index + 1} searches"
        assert row is not None
        exact = [number for number in order.unknown if order.prompts[number - 1].look == EXACT]
        near = [number for number in order.unknown if order.prompts[number - 1].look == NEAR]
        found = proof(ORDER, exact, near if self._rules.near_match_blocks else ())
        if found is Proof.MADE:
            for number in exact:
                order = self.statements.accepted(order, number, order.prompts[number - 1].stage)
            order = _put(order, index, Call(passed=call.passed))
        elif found is Proof.UNRESOLVED:
            if call.saw == row and may_follow(ORDER, Cause.SIGHTING, row.state, UNKNOWN):
                order = order._replace(row=row._replace(state=UNKNOWN), wrong=False)
            order = _end(order, index)
        elif to_send:
            order = _put(order, index, call._replace(at="begin"))
        else:
            order = _end(order, index)
        yield f"{name}: {found.name}", order

    def _told(self, order: Order, index: int) -> Order:
        call = order.calls[index]
        order = self.statements.accepted(order, call.prompt, call.stage)
        if call.stage is Stage.OPEN and not self._world.abandons:
            return _end(order, index)
        passed = (*call.passed, call.prompt) if call.stage is Stage.OPEN else call.passed
        return _put(order, index, Call(passed=passed))

    def _begin(self, order: Order, index: int) -> Steps:
        name, call = f"call {index + 1}", order.calls[index]
        begun = self.statements.begun(order, index)
        if begun is None:
            yield f"{name} may not begin", _put(order, index, Call(passed=call.passed))
        else:
            yield f"{name} commits SENDING", _put(begun, index, call._replace(at="fence"))
        then = "record" if self._rules.commit_before_send else "fence"
        if not call.delayed:
            gives_up = call._replace(at=then, delayed=True, outcome=NOT_SENT)
            yield f"{name} gives up its begin statement", _put(order, index, gives_up)

    def _written(self, order: Order, index: int) -> Order:
        call = order.calls[index]
        others = [other for n, other in enumerate(order.calls) if n != index and other.in_flight]
        broken = "A prompt was sent while an earlier one was in doubt" if others or order.unknown else None
        return _put(order, index, call._replace(at="answer", in_flight=True))._replace(broken=broken)

    def _service(self, order: Order, index: int, call: Call) -> Steps:
        name, call = f"the request of call {index + 1}", call._replace(in_flight=False)
        opened = order._replace(prompts=(*order.prompts, Prompt()))
        yield f"{name} opens a prompt, and its answer is lost", _put(opened, index, call)
        yield f"{name} never arrives", _put(order, index, call)
        if call.at == "answer":
            accepted = call._replace(at="record", outcome=ACCEPTED, prompt=len(opened.prompts))
            yield f"{name} opens a prompt", _put(opened, index, accepted)
            refused = call._replace(at="record", outcome=REFUSED)
            yield f"{name} is refused", _put(order, index, refused)
            if self._world.careless:
                for look in (EXACT, NEAR):
                    untrue = order._replace(prompts=(*order.prompts, Prompt(look=look)), wrong=True)
                    yield f"{name} opens a prompt, and is refused", _put(untrue, index, refused)

    def _may_still_send(self, order: Order, index: int) -> bool:
        """Return whether the lease of a call is not over, or the service may still execute its request."""
        sender = order.calls[index]
        return sender.in_flight or sender.at in {"fence", "answer", "record"}

    def _prompt(self, order: Order, number: int) -> Steps:
        prompt, row, world = order.prompts[number - 1], order.row, self._world

        def becomes(**changes: object) -> Order:
            changed = prompt._replace(**changes)  # type: ignore[arg-type]
            return order._replace(prompts=(*order.prompts[: number - 1], changed, *order.prompts[number:]))

        if prompt.look == HIDDEN:
            yield f"the list shows prompt {number}", becomes(look=EXACT)
            if world.careless:
                yield f"the list shows prompt {number} with another amount", becomes(look=NEAR)
        if prompt.stage is Stage.OPEN:
            yield f"the customer cancels prompt {number}, or it expires", becomes(stage=Stage.ENDED)
        late = prompt.stage is Stage.ENDED and world.late_pin and not prompt.swept
        if prompt.stage is Stage.OPEN or late:
            yield f"the customer pays prompt {number}" + " late" * late, becomes(stage=Stage.PAID)
        if row is None:
            return
        if prompt.stage is not Stage.OPEN:
            told = self.statements.accepted(order, number, prompt.stage)
            yield f"a callback says that prompt {number} is {prompt.stage.name}", told
        if world.late_pin and dict(row.known).get(number) is Stage.ENDED and not prompt.swept:
            swept = becomes(swept=True)
            if self._rules.sweep_reads_an_end_again:
                swept = self.statements.accepted(swept, number, prompt.stage)
            yield f"ten minutes after the end of prompt {number} have passed, with a sweep", swept

    def _person(self, order: Order) -> Steps:
        row = order.row
        if row is None or not may_follow(ORDER, Cause.RELEASE, row.state, NOT_SENT):
            return
        if self._may_still_send(order, row.claim - 1):
            return
        released = order._replace(row=row._replace(state=NOT_SENT))
        if not order.unknown:
            yield "a person releases the row", released
        elif self._world.careless and all(order.prompts[number - 1].look != HIDDEN for number in order.unknown):
            yield "a person releases the row, wrongly", released._replace(wrong=True)


def _put(order: Order, index: int, call: Call) -> Order:
    return order._replace(calls=(*order.calls[:index], call, *order.calls[index + 1 :]))


def _end(order: Order, index: int) -> Order:
    call = order.calls[index]
    saw = call.saw if call.delayed else None
    return _put(order, index, Call("end", saw, delayed=call.delayed, in_flight=call.in_flight))
