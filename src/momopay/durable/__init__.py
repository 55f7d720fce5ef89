"""The calls that write a journal before they send, and those that follow what was sent.

| module | what it is |
|---|---|
| once | one call of ``pay_once`` or ``collect_once``: what it does about a payment |
| send | send a payment once; the journal as one call uses it, and the check of the account |
| known | read and search for what was sent before; let a person release it |
| search | find payments in the service's list, and say what that proves |
| payment | what these calls take and return |
| pay_all, refund | many payouts; pay back |
| sweep | follow everything to its end, and call a handler once for each |
| reconcile | compare days with the service's list |
"""
