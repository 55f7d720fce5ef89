"""What happens around the calls: time, the database, the service, its list, callbacks, customers, sweeps, people."""

from __future__ import annotations

from model.calls import Calls, Steps
from model.rules import Rules, World, may_follow
from model.state import FOREIGN, FORGED, NONE, PHASES, Call, Look, Payment, Phase, Release, Row, State
from momopay.journal.entries import JournalState
from momopay.journal.rules import Cause
from momopay.models.enums import EntryKind, Stage


class Surroundings:
    def __init__(self, rules: Rules, world: World) -> None:
        self._rules = rules
        self._world = world
        self._is_payout = world.kind is EntryKind.PAYOUT
        self._calls = Calls(rules, world)
        self._statements = self._calls.statements

    def steps(self, state: State) -> Steps:
        for label, after in self._steps(state):
            yield label, after.without_idle_times() if self._is_payout else after  # orders have no times

    def _steps(self, state: State) -> Steps:
        if state.waiting and sum(call.at != "end" for call in state.calls) < 2:
            yield from self._calls.started(state)
        for index, call in enumerate(state.calls):
            if call.at != "end":
                yield from self._calls.steps(state, index)
            if self._is_payout:
                yield from self._time(state, index, call)
            if call.delayed:
                begun = self._statements.begun(state, index)
                label = f"the delayed begin statement of call {index + 1} "
                label += "commits" if begun else "changes nothing"
                yield label, (begun or state).put(index, call._replace(delayed=False))
            if call.in_flight:
                yield from self._service(state, index, call)
        yield from self._list(state)
        yield from self._callbacks(state)
        if self._is_payout:
            yield from self._person(state)
        else:
            yield from self._customer(state)
            swept = self._statements.swept(state)
            if swept != state:
                yield "a sweep reads what is open or in doubt", swept
            yield from self._releases(state)

    def _time(self, state: State, index: int, call: Call) -> Steps:
        counts = call.at in {"fence", "write", "answer", "undo", "record"} or call.delayed or call.in_flight
        counts |= state.needs_time(index)
        if call.phase == Phase.EXPIRED or not counts:
            return
        phase = Phase(call.phase + 1)
        too_late = phase == Phase.EXPIRED and self._world.executes_within_a_minute and self._rules.connection_aborted
        # One payment was made for each call at most, and nobody knows here for which: all must be shown by then.
        hidden = any(each.look == Look.HIDDEN for each in state.payments)
        if phase == Phase.EXPIRED and self._world.list_shows_within_a_minute and hidden:
            return
        # What is written while the service must know the key is executed while it does.
        if phase == Phase.EXPIRED and any(each.in_flight and each.key == index + 1 for each in state.calls):
            return
        older = call._replace(phase=phase, in_flight=call.in_flight and not too_late)
        yield f"the row of call {index + 1} {PHASES[phase - 1]}", state.put(index, older)

    def _service(self, state: State, index: int, call: Call) -> Steps:
        request = f"the request of call {index + 1}"
        name, call = f"the service executes {request}", call._replace(in_flight=False)
        done, made = self._executed(state, index, call)
        yield f"{name}, and its answer is lost", done.put(index, call)
        if not self._is_payout:
            yield f"{request} never arrives", state.put(index, call)
        if call.at != "answer":
            return
        answered = call._replace(at="record")
        refused = answered._replace(outcome=JournalState.REFUSED)
        yield name, done.put(index, answered._replace(outcome=JournalState.ACCEPTED, number=made))
        yield f"the service refuses {request}", state.put(index, refused)
        if not self._is_payout:
            for look in (Look.EXACT, Look.NEAR) if self._world.careless else ():
                untrue = state._replace(payments=(*state.payments, Payment(look)), wrong=True)
                yield f"{name}, and refuses it", untrue.put(index, refused)
            return
        yield from self._calls.answered(done, index)
        if not self._world.refusals_are_true:
            yield f"{name}, and refuses it with a known code", done.put(index, refused)

    def _executed(self, state: State, index: int, call: Call) -> tuple[State, int]:
        key = call.key or index + 1
        if call.key and not self._rules.resend_keeps_the_key:
            key = index + 1
        is_known = self._world.keys_are_honoured and state.calls[key - 1].phase < Phase.EXPIRED
        for number, payment in enumerate(state.payments, start=1):
            if is_known and payment.key == key:
                return state, number
        made = Payment(key=key if self._world.payout_keys else 0)
        return state._replace(payments=(*state.payments, made)), len(state.payments) + 1

    def _list(self, state: State) -> Steps:
        for number, payment in enumerate(state.payments, start=1):
            if payment.look == Look.HIDDEN:
                yield f"the list shows payment {number}", state.with_payment(number, look=Look.EXACT)
                if self._is_payout or self._world.careless:
                    label = f"the list shows payment {number} with another amount"
                    yield label, state.with_payment(number, look=Look.NEAR)

    def _callbacks(self, state: State) -> Steps:
        for number, payment in enumerate(state.payments, start=1):
            # An order's callback tells an end; a payout's is heard once.
            if not state.told if self._is_payout else state.row is not None and payment.stage is not Stage.OPEN:
                confirmed = self._statements.accepted(state, number, payment.stage)
                yield f"a callback of payment {number} is confirmed", confirmed
        if self._is_payout and not self._rules.callback_confirmed:
            yield "a forged callback arrives", self._statements.accepted(state, FORGED)

    def _customer(self, state: State) -> Steps:
        for number, prompt in enumerate(state.payments, start=1):
            late = prompt.stage is Stage.ENDED and self._world.late_pin and not prompt.swept
            if prompt.stage is Stage.OPEN:
                ended = state.with_payment(number, stage=Stage.ENDED)
                yield f"the customer cancels prompt {number}, or it expires", ended
            if prompt.stage is Stage.OPEN or late:
                paid = state.with_payment(number, stage=Stage.PAID)
                yield f"the customer pays prompt {number}" + " late" * late, paid
            known = dict(state.row.known) if state.row is not None else {}
            if self._world.late_pin and known.get(number) is Stage.ENDED and not prompt.swept:
                swept = state.with_payment(number, swept=True)
                if self._rules.sweep_reads_an_end_again:
                    swept = self._statements.accepted(swept, number, prompt.stage)
                yield f"ten minutes after the end of prompt {number} have passed, with a sweep", swept

    def _releases(self, state: State) -> Steps:
        row = state.row
        if row is None or not may_follow(self._world.kind, Cause.RELEASE, row.state, JournalState.NOT_SENT):
            return
        sender = state.calls[row.claim - 1]
        if sender.in_flight or sender.at in {"fence", "answer", "record", "undo"}:
            return  # its lease is not over, or the service may still execute its request
        released = state._replace(row=row._replace(state=JournalState.NOT_SENT))
        if not state.unknown:
            yield "a person releases the row", released
        elif self._world.careless and not state.looking(Look.HIDDEN):
            yield "a person releases the row, wrongly", released._replace(wrong=True)

    def _person(self, state: State) -> Steps:
        """Let a person release a payout, by a search in three steps or without one."""
        release, row, rules = state.release, state.row, self._rules
        if row is None:
            return
        may_change = may_follow(self._world.kind, Cause.RELEASE, row.state, JournalState.NOT_SENT)
        ready = may_change and self._waited(state, row)
        hidden = any(each.look == Look.HIDDEN for each in state.payments)
        if release.at == "start":
            yield from self._release_begins(state, row, ready=ready)
        elif release.at == "search" and self._shown(state):
            yield "the release searches, and is refused", state._replace(release=Release())
        elif release.at == "search":
            # In a world whose list lags for ever, the search proves nothing, and the release may be wrong.
            wrong = hidden and not self._world.list_shows_within_a_minute
            yield "the release searches: ABSENT", state._replace(release=release._replace(at="change", wrong=wrong))
        elif release.at == "read" and ready:
            yield "the release reads the row and changes it", _released(state, row, wrong=False)
        elif release.at == "change":
            as_read = release.saw is not None and row.claim == release.saw.claim
            if may_change and (as_read or not rules.release_compares_the_row):
                yield "the release changes the row", _released(state, row, wrong=release.wrong)
            else:
                yield "the release changes nothing", state._replace(release=Release())
        if state.releases and ready:
            after = _released(state, row, wrong=bool(state.payments))._replace(release=release)
            yield "a person releases the row without a search", after._replace(releases=state.releases - 1)

    def _release_begins(self, state: State, row: Row, *, ready: bool) -> Steps:
        if state.releases == 0:
            return
        fewer = state._replace(releases=state.releases - 1)
        if not self._rules.release_reads_the_row_first:
            if not self._shown(state):
                yield "a release searches: ABSENT", fewer._replace(release=Release("read"))
        elif ready:
            then = "search" if self._rules.release_searches else "change"
            yield f"a release reads {row.state}", fewer._replace(release=Release(then, Row(row.state, row.claim)))

    def _shown(self, state: State) -> bool:
        looks = {each.look for each in state.payments}
        return Look.EXACT in looks or (self._rules.release_searches_by_reference and Look.NEAR in looks)

    def _waited(self, state: State, row: Row) -> bool:
        needed = Phase.FRESH
        if self._rules.release_waits_for_lease:
            needed = Phase.EXPIRED if self._world.clocks_agree else Phase.OLDER
        return state.calls[row.claim - 1].phase >= needed

    def violation(self, state: State) -> str | None:
        if state.broken:
            return state.broken
        return self._of_a_payout(state) if self._is_payout else self._of_the_customer(state) or self._of_an_order(state)

    def _of_a_payout(self, state: State) -> str | None:
        row, made = state.row, len(state.payments)
        if made > 1 and not state.unseen:
            return "PAID TWICE"
        if made and not state.wrong and (row is None or row.state in {JournalState.REFUSED, JournalState.NOT_SENT}):
            return f"PAID, and the journal says {'nothing' if row is None else row.state}"
        if row is None or row.state is not JournalState.ACCEPTED:
            return "The journal knew of the payment, and no longer says ACCEPTED" if state.told else None
        return "ACCEPTED as a transaction that is not this payment" if row.transaction < NONE else None

    def _of_the_customer(self, state: State) -> str | None:
        stages, world = [prompt.stage for prompt in state.payments], self._world
        if stages.count(Stage.OPEN) > 1 and not world.abandons:
            return "The customer has TWO OPEN PROMPTS"
        if stages.count(Stage.PAID) > 1 and not (world.late_pin or world.abandons):
            return "PAID TWICE"
        return None

    def _of_an_order(self, state: State) -> str | None:
        row = state.row
        if row is None:
            return "PROMPTED, and the journal says nothing" if state.payments else None
        if state.told and dict(row.known).get(state.told) is not Stage.PAID:
            return "The journal knew that the order is paid, and no longer says so"
        if state.unknown and not (row.state in {JournalState.SENDING, JournalState.UNKNOWN} or state.wrong):
            return f"PROMPTED, and the journal says {row.state}"
        if row.state is JournalState.UNKNOWN and row.attempts <= len(row.known):
            return "UNKNOWN, and every attempt's prompt is known"
        if self._is_at_rest(state):
            known = dict((self._statements.swept(state).row or row).known)
            paid = [number for number, prompt in enumerate(state.payments, 1) if prompt.stage is Stage.PAID]
            if any(known.get(number) is not Stage.PAID for number in paid):
                return "PAID, and the journal does not say so after a sweep"
        return None

    def _is_at_rest(self, state: State) -> bool:
        """Return whether nothing but a sweep is left to happen."""
        if state.wrong or any(call.at != "end" or call.delayed or call.in_flight for call in state.calls):
            return False
        known = dict(state.row.known) if state.row is not None and self._world.late_pin else dict[int, Stage]()
        return all(
            prompt.look == Look.EXACT
            and prompt.stage is not Stage.OPEN
            and (prompt.swept or known.get(number) is not Stage.ENDED)
            for number, prompt in enumerate(state.payments, 1)
        )


def _released(state: State, row: Row, *, wrong: bool) -> State:
    """Return the state after a release changed the row, with no other release under way."""
    unseen = state.unseen or (wrong and any(each.look == Look.HIDDEN for each in state.payments))
    after = state._replace(row=row._replace(state=JournalState.NOT_SENT), release=Release())
    return after._replace(wrong=state.wrong or wrong, unseen=unseen)


def but_for_foreign_ids(world: Surroundings, state: State) -> str | None:
    """Return what else does not hold: nobody can tell at once that such an id is wrong. A later read must notice."""
    return state.broken if state.row is not None and state.row.transaction == FOREIGN else world.violation(state)
