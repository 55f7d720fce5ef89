"""Values that many tests of payments have."""

from datetime import datetime

from momopay import EntryKind, JournalState

PHONE = "254712345678"
PAYOUT, COLLECTION = EntryKind.PAYOUT, EntryKind.COLLECTION
SENDING, ACCEPTED, REFUSED, NOT_SENT, UNKNOWN = (
    JournalState.SENDING,
    JournalState.ACCEPTED,
    JournalState.REFUSED,
    JournalState.NOT_SENT,
    JournalState.UNKNOWN,
)
ENDED_AT = "2026-11-20T10:00:00+00:00"
# Without a zone, and one that UTC does not have.
NO_TIMES = datetime(2026, 11, 1), datetime.fromisoformat("0001-01-01T00:00:00+03:00")  # noqa: DTZ001
