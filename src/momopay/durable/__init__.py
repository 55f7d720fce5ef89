"""The calls that write a journal before they send, and those that follow what was sent.

| module | what it is |
|---|---|
| once | one call of ``pay_once`` or ``collect_once``: what it does about a payment |
| send | send a payment once |
| known | read and search for what was sent before |
| search | walk the service's list, and say what that proves |
| access | the journal as one call uses it, and the check of the account |
| payment | `Payment`, what these calls return |
| pay_all, payout_items | many payouts |
| refund, release | pay back; let a person decide |
| sweep, delivery | follow everything to its end, and call a handler once for each |
| reconcile_days, day_report, day_rules | compare days with the service's list |
"""
