"""A callback's body to a typed record, with and without its URL's token, against `json.loads` of the same bytes."""

import json
from collections.abc import Callable

from benchmarks.measure import Row, Scale, cpu, take_turns
from models.kit import PAYLOAD
from momopay import CallbackSigner, parse_callback

CALLS = 10_000
BODY = json.dumps(PAYLOAD, separators=(",", ":")).encode()
SIGNER = CallbackSigner("a secret of the benchmark's own")
QUERY = SIGNER.url("https://shop.example/momo?shop=7", reference="INV-42").partition("?")[2]


def checked() -> bool:
    """Do what an adapter does before it calls the handler."""
    reference = SIGNER.verify(QUERY)
    return parse_callback(BODY).transaction.external_reference == reference


def measure(scale: Scale) -> list[Row]:
    calls = scale.of(CALLS)
    sides: dict[str, Callable[[], float]] = {
        "momopay": lambda: cpu(lambda: parse_callback(BODY), calls),
        "checked": lambda: cpu(checked, calls),
        "json": lambda: cpu(lambda: json.loads(BODY), calls),
    }
    taken = take_turns(sides, scale)
    return [
        Row("callback body to record", "us CPU a body", taken["momopay"], "json.loads", taken["json"], 1.0),
        Row("callback with its token checked", "us CPU a body", taken["checked"], "json.loads", taken["json"], 1.7),
    ]
