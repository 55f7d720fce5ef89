"""The payments service itself, for tests: every rule of the service page, with virtual time and faults on demand.

It imports nothing from the rest of momopay, so it is an independent reading of the service's specification.

A request goes through `_server`, `_fault_middleware` and `_app` to its row in `_endpoints`, whose rules are in
`_payments`, `_listing` and `_lifecycle`, without a clock, a socket or a framework. `_engine` lets the time pass.
"""

# Without the extra, an import error would name uvicorn or FastAPI instead of what to install.
try:
    from momopay.sandbox._accounts import Account, Channel, Credential, Switches
    from momopay.sandbox._faults import Fault
    from momopay.sandbox._outcomes import Outcome, phone_for
    from momopay.sandbox._records import CallbackRecord, Movement, MovementKind, ReceivedRequest
    from momopay.sandbox._refusals import Refusal
    from momopay.sandbox._sandbox import Sandbox
except ModuleNotFoundError as _missing:
    raise ModuleNotFoundError(
        f'momopay.sandbox needs {_missing.name}; it comes with the extra: pip install "momopay[sandbox]"',
        name=_missing.name,
    ) from _missing

__all__ = [
    "Account",
    "CallbackRecord",
    "Channel",
    "Credential",
    "Fault",
    "Movement",
    "MovementKind",
    "Outcome",
    "ReceivedRequest",
    "Refusal",
    "Sandbox",
    "Switches",
    "phone_for",
]
