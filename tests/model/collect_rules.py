"""The rules of ``collect_once`` that the model can turn off, and the worlds in which it is explored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CollectRules:
    """What ``collect_once``, the journal and the sweep do. A rule that is False is broken."""

    commit_before_send: bool = True
    """A prompt is sent only after its row was committed as SENDING."""
    begin_is_conditional: bool = True
    """The database decides whether the row may become SENDING, whatever the call read before."""
    begin_needs_the_row_it_read: bool = True
    """The row becomes SENDING only if neither it nor a prompt of it changed since the call read it."""
    sending_blocks: bool = True
    """A row in SENDING is never sent by a second call."""
    absence_is_no_proof: bool = True
    """A row in UNKNOWN is not sent because a search did not find its prompt."""
    open_prompt_blocks: bool = True
    """An open prompt is returned, and no second one is sent before `abandon_after` has passed."""
    paid_blocks: bool = True
    """A paid order is returned for ever."""
    search_before_resend: bool = True
    """One search goes before a new prompt, if an attempt was refused, not sent or released."""
    near_match_blocks: bool = True
    """A new prompt does not go out if the list shows the order's reference with another amount, phone or time."""
    known_prompt_keeps_a_later_attempt: bool = True
    """What is heard of a known prompt changes nothing of a later attempt that is under way."""
    outcome_needs_the_claim: bool = True
    """A call records how it ended only in a row that still has its claim."""
    outcome_needs_an_open_row: bool = True
    """A call records a failure only in a row in SENDING."""
    timeout_is_unclear: bool = True
    """A request without an answer is recorded as UNKNOWN."""
    status_moves_forward: bool = True
    """What the journal knows of a prompt is never replaced by an older read."""
    sweep_searches: bool = True
    """A sweep searches for the prompt of a row in UNKNOWN."""
    sweep_reads_open_prompts: bool = True
    """A sweep reads every prompt that is open, also of an order that has another one."""
    sweep_reads_an_end_again: bool = True
    """A sweep reads a prompt that ended without success once more, ten minutes later."""


@dataclass(frozen=True)
class CollectWorld:
    """What customers and people may do besides."""

    late_pin: bool = False
    """A prompt that ended without success may still be paid, for ten minutes."""
    abandons: bool = False
    """The caller gave `abandon_after`, and it may have passed for any open prompt."""
    careless: bool = False
    """A release or a refusal may be wrong where the list shows the prompt, perhaps with another amount."""
