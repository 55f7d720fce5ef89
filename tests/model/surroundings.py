"""What happens around the calls: time, the database, the service, its list, callbacks, and people."""

from __future__ import annotations

from model.payouts import (
    EXACT,
    EXPIRED,
    FOREIGN,
    FORGED,
    FRESH,
    HELD,
    HIDDEN,
    NEAR,
    OLDER,
    PAYOUT,
    PHASES,
    Call,
    Release,
    Row,
    State,
)
from model.rules import PayoutRules, World
from model.sender import ACCEPTED, NOT_SENT, REFUSED, UNKNOWN, Sender, Steps, accepted, put
from momopay.journal.rules import Cause, may_follow


class Surroundings:
    """One world, under one set of rules."""

    def __init__(self, rules: PayoutRules, world: World) -> None:
        self._rules = rules
        self._world = world
        self._sender = Sender(rules, world)

    def steps(self, state: State) -> Steps:
        """Yield everything that may happen next."""
        if state.waiting and sum(call.at != "end" for call in state.calls) < 2:
            yield from self._sender.started(state)
        for index, call in enumerate(state.calls):
            yield from self._sender.steps(state, index)
            yield from self._time(state, index, call)
            if call.delayed:
                begun = self._sender.begun(state, index)
                label = f"the delayed begin statement of call {index + 1} " + (
                    "commits" if begun else "changes nothing"
                )
                yield label, put(begun or state, index, call._replace(delayed=False))
            if call.in_flight:
                yield from self._service(state, index, call)
        yield from self._list(state)
        yield from self._callbacks(state)
        yield from self._person(state)

    def _time(self, state: State, index: int, call: Call) -> Steps:
        counts = (
            call.at in {"fence", "write", "answer", "undo", "record"}
            or call.delayed
            or call.in_flight
            or (state.row is not None and state.row.claim == index + 1)
        )
        if call.phase == EXPIRED or not counts:
            return
        phase = call.phase + 1
        too_late = phase == EXPIRED and self._world.executes_within_a_minute and self._rules.connection_aborted
        in_flight = call.in_flight and not too_late
        # One payment was made for each call at most, and nobody knows here for which: all must be shown by then.
        if phase == EXPIRED and self._world.list_shows_within_a_minute and HIDDEN in state.payments:
            return
        yield (
            f"the row of call {index + 1} {PHASES[phase - 1]}",
            put(state, index, call._replace(phase=phase, in_flight=in_flight)),
        )

    def _service(self, state: State, index: int, call: Call) -> Steps:
        name = f"the service executes the request of call {index + 1}"
        call = call._replace(in_flight=False)
        done = state._replace(payments=(*state.payments, HIDDEN))
        own = len(done.payments)
        if call.at != "answer":
            yield f"{name} late", put(done, index, call)
            return
        answered = call._replace(at="record")
        yield f"{name}, and its answer is lost", put(done, index, call)
        yield f"{name}", put(done, index, answered._replace(outcome=ACCEPTED, transaction=own))
        unclear = UNKNOWN if self._rules.unknown_code_is_unclear else REFUSED
        yield f"{name}, and refuses it with an unknown code", put(done, index, answered._replace(outcome=unclear))
        if self._rules.acceptance_compared:
            other = answered._replace(outcome=UNKNOWN)
        else:
            other = answered._replace(outcome=ACCEPTED, transaction=FOREIGN)
        yield f"{name}, and answers with another payment", put(done, index, other)
        bare = answered._replace(outcome=ACCEPTED, transaction=HELD)
        yield f"{name}, and answers with nothing but the id of another row", put(done, index, bare)
        if not self._world.answers_name_their_payment:
            bare = answered._replace(outcome=ACCEPTED, transaction=FOREIGN)
            yield f"{name}, and answers with nothing but the id of another payment", put(done, index, bare)
        refused = answered._replace(outcome=REFUSED)
        yield f"the service refuses the request of call {index + 1}", put(state, index, refused)
        again = f"the service refuses the request of call {index + 1} for the rate, and the call tries again"
        yield again, put(state, index, call._replace(at="fence"))
        if not self._world.refusals_are_true:
            yield f"{name}, and refuses it with a known code", put(done, index, refused)

    def _list(self, state: State) -> Steps:
        for index, look in enumerate(state.payments):
            if look == HIDDEN:
                before, after = state.payments[:index], state.payments[index + 1 :]
                yield f"the list shows payment {index + 1}", state._replace(payments=(*before, EXACT, *after))
                label = f"the list shows payment {index + 1} with another amount"
                yield label, state._replace(payments=(*before, NEAR, *after))

    def _callbacks(self, state: State) -> Steps:
        if not state.told:
            for number in range(1, len(state.payments) + 1):
                yield f"a callback of payment {number} is confirmed", accepted(state, number)
        if not self._rules.callback_confirmed:
            yield "a forged callback arrives", accepted(state, FORGED)

    def _person(self, state: State) -> Steps:
        release, row, rules = state.release, state.row, self._rules
        if row is None:
            return
        ready = may_follow(PAYOUT, Cause.RELEASE, row.state, NOT_SENT) and self._waited(state, row)
        if release.at == "start":
            yield from self._release_begins(state, row, ready=ready)
        elif release.at == "search" and self._shown(state):
            yield "the release searches, and is refused", state._replace(release=Release())
        elif release.at == "search":
            # In a world whose list lags for ever, the search proves nothing, and the release may be wrong.
            wrong = HIDDEN in state.payments and not self._world.list_shows_within_a_minute
            absent = release._replace(at="change", wrong=wrong)
            yield "the release searches: ABSENT", state._replace(release=absent)
        elif release.at == "read" and ready:
            after = _released(state, row, wrong=False)
            yield "the release reads the row and changes it", after._replace(release=Release())
        elif release.at == "change":
            as_read = row.claim == release.claim
            if may_follow(PAYOUT, Cause.RELEASE, row.state, NOT_SENT) and (
                as_read or not rules.release_compares_the_row
            ):
                after = _released(state, row, wrong=release.wrong)
                yield "the release changes the row", after._replace(release=Release())
            else:
                yield "the release changes nothing", state._replace(release=Release())
        if state.releases and ready:
            after = _released(state, row, wrong=bool(state.payments))
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
            yield f"a release reads {row.state}", fewer._replace(release=Release(then, row.state, row.claim))

    def _shown(self, state: State) -> bool:
        return EXACT in state.payments or (self._rules.release_searches_by_reference and NEAR in state.payments)

    def _waited(self, state: State, row: Row) -> bool:
        needed = FRESH
        if self._rules.release_waits_for_lease:
            needed = EXPIRED if self._world.clocks_agree else OLDER
        return state.calls[row.claim - 1].phase >= needed


def _released(state: State, row: Row, *, wrong: bool) -> State:
    unseen = state.unseen or (wrong and HIDDEN in state.payments)
    return state._replace(row=row._replace(state=NOT_SENT), wrong=state.wrong or wrong, unseen=unseen)


def violation_in(state: State) -> str | None:
    """Return which property does not hold, None if all do."""
    row, made = state.row, len(state.payments)
    if state.broken:
        return state.broken
    if made > 1 and not state.unseen:
        return "PAID TWICE"
    if made and not state.wrong and (row is None or row.state in {REFUSED, NOT_SENT}):
        return f"PAID, and the journal says {'nothing' if row is None else row.state}"
    if row is None or row.state is not ACCEPTED:
        return "The journal knew of the payment, and no longer says ACCEPTED" if state.told else None
    if row.transaction < 0:
        return "ACCEPTED as a transaction that is not this payment"
    return None
