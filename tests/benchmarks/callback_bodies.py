"""A callback's body to a typed record, against `json.loads` of the same bytes."""

from __future__ import annotations

import json

from benchmarks.answers import ID
from benchmarks.measure import Row, Scale, cpu, take_turns
from momopay import parse_callback

CALLS = 10_000
_WHEN = "2026-01-05T09:00:00.000Z"
BODY = json.dumps(
    {
        "event": "transaction.updated",
        "event_type": "transaction.success",
        "transaction": {
            "id": ID,
            "tenant_id": ID,
            "type": "STK",
            "status": "SUCCESS",
            "amount": 100.5,
            "currency": "KES",
            "phone_number": "254712345678",
            "external_reference": "INV-42",
            "provider": "MPESA",
            "provider_request_id": "29115-34620561-1",
            "provider_checkout_id": "ws_CO_191220191020363925",
            "momo_receipt": "NLJ7RT61SV",
            "transaction_fee": 1,
            "result_code": "0",
            "result_desc": "The service request is processed successfully.",
            "created_at": _WHEN,
            "updated_at": _WHEN,
        },
    },
    separators=(",", ":"),
).encode()


def measure(scale: Scale) -> list[Row]:
    """Time both readings."""
    calls = scale.of(CALLS)
    sides = {
        "momopay": lambda: cpu(lambda: parse_callback(BODY), calls),
        "json": lambda: cpu(lambda: json.loads(BODY), calls),
    }
    taken = take_turns(sides, scale)
    return [Row("callback body to record", "us CPU a body", taken["momopay"], "json.loads", taken["json"], 1.0)]
