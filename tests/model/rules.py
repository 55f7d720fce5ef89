"""The rules that the model can turn off, and what it assumes of the world around them.

Each rule is one thing that the code does. The tests turn off each one, and expect a counterexample. The same holds for
each assumption about payouts: without it, the guarantee does not hold.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache

from momopay.journal.entries import JournalState
from momopay.journal.rules import Cause, transitions
from momopay.models.enums import EntryKind


@cache  # asked at every step of an exploration
def may_follow(kind: EntryKind, cause: Cause, before: JournalState | None, after: JournalState) -> bool:
    """Return whether the code lets a cause change a row from one state to another."""
    return before in transitions(kind)[cause].get(after, frozenset())


@dataclass(frozen=True)
class Rules:
    """What the durable calls, the journal, releases and sweeps do. A rule that is False is broken."""

    commit_before_send: bool = True
    """A payment is sent only after its row was committed as SENDING."""
    begin_is_conditional: bool = True
    """The database decides whether a row may become SENDING, whatever the call read before."""
    begin_needs_the_row_it_read: bool = True
    """The row becomes SENDING only if neither it nor a transaction of it changed since the call read it."""
    sending_blocks: bool = True
    """A row in SENDING is never sent by a second call."""
    absence_is_no_proof: bool = True
    """A row in UNKNOWN is not sent because a search did not find it."""
    search_before_resend: bool = True
    """One search goes before a second send, if an attempt was refused, not sent or released."""
    near_match_blocks: bool = True
    """A second send does not happen if the list shows the reference with another amount, phone, type or time."""
    outcome_needs_the_claim: bool = True
    """A call records how it ended only in a row that still has its claim."""
    outcome_needs_an_open_row: bool = True
    """A call records a failure only in a row in SENDING."""
    timeout_is_unclear: bool = True
    """A request without an answer is recorded as UNKNOWN."""
    open_blocks: bool = True
    """What was accepted blocks another send, unless it is an order's prompt that has ended or was abandoned."""

    # Of payouts alone
    undo_needs_the_claim: bool = True
    """A call that gave up its begin statement undoes only its own."""
    acceptance_overrides: bool = True
    """A true acceptance is recorded whatever the row says, even after a release."""
    unknown_code_is_unclear: bool = True
    """A refusal with a code that is not in the service's table is recorded as UNKNOWN."""
    acceptance_compared: bool = True
    """An acceptance counts only if reference, amount, phone and type fit."""
    transaction_has_one_row: bool = True
    """An acceptance does not count if another row has its transaction id."""
    later_read_compared: bool = True
    """A row in ACCEPTED whose transaction turns out to be another payment becomes UNKNOWN."""
    contradiction_compares_the_id: bool = True
    """It does so only if it still names the transaction that was read."""
    sighting_recorded: bool = True
    """A row in REFUSED or NOT_SENT for which a search shows a near match becomes UNKNOWN."""
    fence_before_body: bool = True
    """No byte of the body is written after the deadline."""
    reread_row_after_a_second: bool = True
    """The row is read again before the body, if more than a second passed since its commit."""
    connection_aborted: bool = True
    """A request that the network still holds when its call ends never arrives."""
    release_searches: bool = True
    """``client.payouts.release`` refuses while the list shows the payment."""
    release_searches_by_reference: bool = True
    """It refuses for a near match, too."""
    release_waits_for_lease: bool = True
    """A release waits for a minute after the lease of the latest attempt, whatever its call recorded."""
    release_reads_the_row_first: bool = True
    """It reads the row before it searches."""
    release_compares_the_row: bool = True
    """It changes the row only if it has the claim that it read, and is still in doubt."""
    callback_confirmed: bool = True
    """A callback settles a row only once the service's own record confirmed it."""

    resend_keeps_the_key: bool = True
    """A payout in UNKNOWN is sent again only with the key of the first request."""
    resend_in_time: bool = True
    """It is sent again only while the service must still know the key."""
    resend_stays_unclear: bool = True
    """Whatever a repeated request fails with, the row is UNKNOWN."""

    # Of orders alone
    paid_blocks: bool = True
    """A paid order is returned for ever."""
    known_prompt_keeps_a_later_attempt: bool = True
    """What is heard of a known prompt changes nothing of a later attempt that is under way."""
    status_moves_forward: bool = True
    """What the journal knows of a prompt is never replaced by an older read."""
    sweep_searches: bool = True
    """A sweep searches for the prompt of a row in UNKNOWN."""
    sweep_reads_open_prompts: bool = True
    """A sweep reads every prompt that is open, also of an order that has another one."""
    sweep_reads_an_end_again: bool = True
    """A sweep reads a prompt that ended without success once more, ten minutes later."""


ALL = [field.name for field in fields(Rules)]
_FIRST_OF_PAYOUTS, _FIRST_OF_ORDERS = ALL.index("undo_needs_the_claim"), ALL.index("paid_blocks")
OF_PAYOUTS = ALL[:_FIRST_OF_ORDERS]
OF_ORDERS = [*ALL[:_FIRST_OF_PAYOUTS], *ALL[_FIRST_OF_ORDERS:]]


@dataclass(frozen=True)
class World:
    """What the service, the list, clocks, customers and people may do."""

    kind: EntryKind = EntryKind.PAYOUT

    # Of payouts: True is the better world, in which the guarantee holds.

    list_shows_within_a_minute: bool = True
    """The list shows a payment a minute after the lease of its call, at the latest."""
    executes_within_a_minute: bool = True
    """The service executes a request at most a minute after the lease of its call, or never."""
    check_and_write_are_one: bool = True
    """A sender does not freeze between the last check and the write of the body."""
    refusals_are_true: bool = True
    """A refusal with a code of the service's table means that nothing was executed."""
    clocks_agree: bool = True
    """A person's clock is not ahead of the sender's by more than the lease and a minute."""
    answers_name_their_payment: bool = True
    """An acceptance without a reference does not name somebody else's transaction."""

    keys_are_honoured: bool = True
    """The service answers with its payment to a key that it knows. It knows one as long as its first call has time."""

    # Of payouts besides
    payout_keys: bool = False
    """The client knows that keys are honoured."""

    # Of orders: what customers and people may do besides
    late_pin: bool = False
    """A prompt that ended without success may still be paid, for ten minutes."""
    abandons: bool = False
    """The caller gave `abandon_after`, and it may have passed for any open prompt."""
    careless: bool = False
    """A release or a refusal may be wrong where the list shows the prompt, perhaps with another amount."""


ASSUMPTIONS = [field.name for field in fields(World) if field.default is True]
