"""The durable calls: they write to a journal before they send, and follow what was sent to its end.

| module | contents |
|---|---|
| decide | no I/O: what a call does next about a payment; the only place that says when money may be sent |
| call | one call of ``pay_once``, ``collect_once`` or ``refund``: takes the steps that were decided |
| send | commit the row, send the request, record the outcome |
| lookup | read and search for what was sent before |
| duplicates | no I/O: a reference that was used before for another payment |
| access, past | the journal as one call uses it; an account with payments that its journal does not know |
| payment | the arguments and results of these calls, and the error for an unknown outcome |
| pay_all, similar, refund | many payouts; references that look alike; pay back a collection |
| release | let a person free a payment of unknown outcome |
| receive | receive a callback |
| sweep, plan | follow everything to its end, and call a handler once for each; what one pass asks for |
| reconcile, remedies | compare days of the service's list with the journal; what to do about a difference |
"""
