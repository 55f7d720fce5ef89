"""The durable calls: they write to a journal before they send, and follow what was sent to its end.

| module | contents |
|---|---|
| once | one call of ``pay_once`` or ``collect_once``: choose and take the next step for a payment |
| send | commit the row, send the request, record the outcome; access to the journal, and its account check |
| lookup | read and search for earlier attempts; release a payment |
| payment | the arguments and results of these calls, and the error for an unknown outcome |
| pay_all, refund | many payouts; pay back a collection |
| sweep | follow everything to its end, and call a handler once for each |
| reconcile | compare days of the service's list with the journal |
"""
