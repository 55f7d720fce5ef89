"""The signal for what ended."""

from __future__ import annotations

from typing import Final

from django.dispatch import Signal

payment_ended: Final = Signal()
"""Sent once for each end of a payment that is final, whether a callback or a sweep brought it.

Arguments: ``payment`` (`momopay.Payment`), ``reference`` (yours), ``kind`` (`momopay.EntryKind`) and ``metadata`` (what
was given to the call, or None). A payout that FAILED has not ended before it is REVERSED. If a receiver raises, all
receivers are called again, by the next sweep or by the service's next callback. Each order may end several times: a
cancelled prompt, then a paid one.
"""
