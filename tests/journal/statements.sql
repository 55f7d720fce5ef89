-- BEGIN PAYOUT
UPDATE momopay_payments
SET phone=:new_phone,
  state='SENDING',
  seen_id=NULL,
  code=NULL,
  attempts=(attempts + 1),
  idempotency_key=:new_idempotency_key,
  key_since=:new_key_since,
  sent_at=CASE WHEN (kind = 'PAYOUT' AND attempts > 0) THEN sent_at ELSE :now END,
  metadata=coalesce(:new_metadata, metadata),
  paid_before=:new_paid_before,
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 0) THEN clock_offset ELSE :new_clock_offset END,
  revision=(revision + 1),
  claim=:claim,
  sender=:sender,
  machine=:machine,
  lease_seconds=:lease_seconds,
  lease_until=:lease_until
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND (state = 'REFUSED' OR state = 'NOT_SENT')
  AND revision = :the_revision

-- BEGIN COLLECTION
UPDATE momopay_payments
SET phone=:new_phone,
  state='SENDING',
  seen_id=NULL,
  code=NULL,
  attempts=(attempts + 1),
  idempotency_key=:new_idempotency_key,
  key_since=:new_key_since,
  sent_at=CASE WHEN (kind = 'PAYOUT' AND attempts > 0) THEN sent_at ELSE :now END,
  metadata=coalesce(:new_metadata, metadata),
  paid_before=:new_paid_before,
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 0) THEN clock_offset ELSE :new_clock_offset END,
  revision=(revision + 1),
  claim=:claim,
  sender=:sender,
  machine=:machine,
  lease_seconds=:lease_seconds,
  lease_until=:lease_until
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND (state = 'ACCEPTED' OR state = 'REFUSED' OR state = 'NOT_SENT')
  AND revision = :the_revision

-- RESEND PAYOUT
UPDATE momopay_payments
SET state='SENDING',
  attempts=(attempts + 1),
  revision=(revision + 1),
  claim=:claim,
  sender=:sender,
  machine=:machine,
  lease_seconds=:lease_seconds,
  lease_until=:lease_until
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND (state = 'SENDING' OR state = 'UNKNOWN')
  AND revision = :the_revision

-- OUTCOMES REFUSED PAYOUT
UPDATE momopay_payments
SET state='REFUSED',
  seen_id=coalesce(:new_seen_id, seen_id),
  code=:new_code,
  attempts=(attempts - 0),
  key_since=:new_key_since,
  key_number=(key_number + :new_key_number),
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 1) THEN clock_offset ELSE coalesce(clock_offset, :new_clock_offset) END,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND state = 'SENDING'
  AND claim = :the_claim

-- OUTCOMES REFUSED COLLECTION
UPDATE momopay_payments
SET state='REFUSED',
  seen_id=coalesce(:new_seen_id, seen_id),
  code=:new_code,
  attempts=(attempts - 0),
  key_since=:new_key_since,
  key_number=(key_number + :new_key_number),
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 1) THEN clock_offset ELSE coalesce(clock_offset, :new_clock_offset) END,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND state = 'SENDING'
  AND claim = :the_claim

-- OUTCOMES NOT_SENT PAYOUT
UPDATE momopay_payments
SET state='NOT_SENT',
  seen_id=coalesce(:new_seen_id, seen_id),
  code=:new_code,
  attempts=(attempts - 1),
  key_since=:new_key_since,
  key_number=(key_number + :new_key_number),
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 1) THEN clock_offset ELSE coalesce(clock_offset, :new_clock_offset) END,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND state = 'SENDING'
  AND claim = :the_claim

-- OUTCOMES NOT_SENT COLLECTION
UPDATE momopay_payments
SET state='NOT_SENT',
  seen_id=coalesce(:new_seen_id, seen_id),
  code=:new_code,
  attempts=(attempts - 1),
  key_since=:new_key_since,
  key_number=(key_number + :new_key_number),
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 1) THEN clock_offset ELSE coalesce(clock_offset, :new_clock_offset) END,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND state = 'SENDING'
  AND claim = :the_claim

-- OUTCOMES UNKNOWN PAYOUT
UPDATE momopay_payments
SET state='UNKNOWN',
  seen_id=coalesce(:new_seen_id, seen_id),
  code=:new_code,
  attempts=(attempts - 0),
  key_since=:new_key_since,
  key_number=(key_number + :new_key_number),
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 1) THEN clock_offset ELSE coalesce(clock_offset, :new_clock_offset) END,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND state = 'SENDING'
  AND claim = :the_claim

-- OUTCOMES UNKNOWN COLLECTION
UPDATE momopay_payments
SET state='UNKNOWN',
  seen_id=coalesce(:new_seen_id, seen_id),
  code=:new_code,
  attempts=(attempts - 0),
  key_since=:new_key_since,
  key_number=(key_number + :new_key_number),
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 1) THEN clock_offset ELSE coalesce(clock_offset, :new_clock_offset) END,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND state = 'SENDING'
  AND claim = :the_claim

-- ACCEPT PAYOUT
UPDATE momopay_payments
SET state='ACCEPTED',
  seen_id=NULL,
  code=NULL,
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 1) THEN clock_offset ELSE coalesce(clock_offset, :new_clock_offset) END,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND (state = 'SENDING' OR state = 'ACCEPTED' OR state = 'REFUSED' OR state = 'NOT_SENT' OR state = 'UNKNOWN')

-- ACCEPT COLLECTION
UPDATE momopay_payments
SET state='ACCEPTED',
  seen_id=NULL,
  code=NULL,
  clock_offset=CASE WHEN (kind = 'PAYOUT' AND attempts > 1) THEN clock_offset ELSE coalesce(clock_offset, :new_clock_offset) END,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND (state = 'SENDING' OR state = 'ACCEPTED' OR state = 'REFUSED' OR state = 'NOT_SENT' OR state = 'UNKNOWN')

-- MARK_CONTRADICTED PAYOUT
UPDATE momopay_payments
SET state='UNKNOWN',
  seen_id=NULL,
  key_since=NULL,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND state = 'ACCEPTED'

-- MARK_CONTRADICTED COLLECTION
UPDATE momopay_payments
SET state='UNKNOWN',
  seen_id=NULL,
  key_since=NULL,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND state = 'ACCEPTED'

-- MARK_SEEN PAYOUT
UPDATE momopay_payments
SET state='UNKNOWN',
  key_since=NULL,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND (state = 'REFUSED' OR state = 'NOT_SENT')
  AND revision = :the_revision

-- MARK_SEEN COLLECTION
UPDATE momopay_payments
SET state='UNKNOWN',
  key_since=NULL,
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND (state = 'ACCEPTED' OR state = 'REFUSED' OR state = 'NOT_SENT')
  AND revision = :the_revision

-- RELEASE PAYOUT
UPDATE momopay_payments
SET state='NOT_SENT',
  released_by=:new_released_by,
  released_at=:now,
  search_after=(coalesce(:service_now, ((julianday('now') - 2440587.5) * 86400.0)) + 600.0),
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND (state = 'SENDING' OR state = 'UNKNOWN')
  AND revision = :the_revision

-- RELEASE COLLECTION
UPDATE momopay_payments
SET state='NOT_SENT',
  released_by=:new_released_by,
  released_at=:now,
  search_after=(coalesce(:service_now, ((julianday('now') - 2440587.5) * 86400.0)) + 600.0),
  revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND (state = 'SENDING' OR state = 'UNKNOWN')
  AND revision = :the_revision

-- SEARCH_AGAIN
UPDATE momopay_payments
SET search_after=(coalesce(:service_now, ((julianday('now') - 2440587.5) * 86400.0)) + 600.0)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference

-- LEASE
SELECT claim, machine, lease_seconds, lease_until  FROM momopay_payments 
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference

-- MOVE_LEASE
UPDATE momopay_payments
SET machine=:new_machine,
  lease_until=:new_lease_until
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference
  AND claim = :the_claim

-- LOCK
SELECT revision  FROM momopay_payments 
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference

-- LOCK_SOME
SELECT revision  FROM momopay_payments 
WHERE account = :the_account
  AND kind = :the_kind
  AND reference IN (__[POSTCOMPILE_references]) ORDER BY reference

-- TOUCH
UPDATE momopay_payments
SET revision=(revision + 1)
WHERE account = :the_account
  AND kind = :the_kind
  AND reference = :the_reference

-- ADD_TRANSACTION
INSERT INTO momopay_transactions (account, transaction_id, kind, reference, amount, phone, status, result_code, receipt, fee, sent_at, ended_at, learned_at, learned_at_service) VALUES (:account, :transaction_id, :kind, :reference, :amount, :phone, :status, :result_code, :receipt, :fee, :sent_at, :ended_at, CASE WHEN (:status = 'SUCCESS' OR :status = 'FAILED' OR :status = 'REVERSED' OR :status = 'CANCELLED' OR :status = 'EXPIRED') THEN ((julianday('now') - 2440587.5) * 86400.0) END, :learned_at_service) ON CONFLICT DO NOTHING

-- ADVANCE OPEN
UPDATE momopay_transactions
SET status=coalesce(:new_status, status),
  result_code=coalesce(:new_result_code, result_code),
  receipt=coalesce(:new_receipt, receipt),
  fee=coalesce(:new_fee, fee),
  ended_at=coalesce(:new_ended_at, ended_at),
  learned_at_service=coalesce(:new_learned_at_service, learned_at_service)
WHERE account = :the_account
  AND transaction_id = :the_transaction_id
  AND (status IS NULL OR status != 'SUCCESS'
  AND status != 'FAILED'
  AND status != 'REVERSED'
  AND status != 'CANCELLED'
  AND status != 'EXPIRED')

-- ADVANCE ENDED
UPDATE momopay_transactions
SET status=coalesce(:new_status, status),
  result_code=CASE WHEN (status IS NULL OR status != 'SUCCESS' AND status != 'FAILED' AND status != 'REVERSED' AND status != 'CANCELLED' AND status != 'EXPIRED') THEN :new_result_code ELSE coalesce(:new_result_code, result_code) END,
  receipt=coalesce(:new_receipt, receipt),
  fee=coalesce(:new_fee, fee),
  ended_at=coalesce(:new_ended_at, ended_at),
  learned_at=CASE WHEN (status IS NULL OR status != 'SUCCESS' AND status != 'FAILED' AND status != 'REVERSED' AND status != 'CANCELLED' AND status != 'EXPIRED' OR :new_status = 'REVERSED' AND (status IS NULL OR status != 'REVERSED')) THEN ((julianday('now') - 2440587.5) * 86400.0) ELSE coalesce(learned_at, ((julianday('now') - 2440587.5) * 86400.0)) END,
  learned_at_service=CASE WHEN (status IS NULL OR status != 'SUCCESS' AND status != 'FAILED' AND status != 'REVERSED' AND status != 'CANCELLED' AND status != 'EXPIRED' OR :new_status = 'REVERSED' AND (status IS NULL OR status != 'REVERSED')) THEN :new_learned_at_service ELSE coalesce(learned_at_service, :new_learned_at_service) END
WHERE account = :the_account
  AND transaction_id = :the_transaction_id
  AND (status IS NULL OR status != 'SUCCESS')
  AND (status IS NULL OR status != 'REVERSED' OR :new_status = 'REVERSED')

-- ADVANCE PAID
UPDATE momopay_transactions
SET status=coalesce(:new_status, status),
  result_code=coalesce(:new_result_code, result_code),
  receipt=coalesce(:new_receipt, receipt),
  fee=coalesce(:new_fee, fee),
  ended_at=coalesce(:new_ended_at, ended_at),
  learned_at_service=coalesce(:new_learned_at_service, learned_at_service)
WHERE account = :the_account
  AND transaction_id = :the_transaction_id

-- MARK_PAID
UPDATE momopay_transactions
SET status=:new_status,
  result_code=:new_result_code,
  receipt=CASE WHEN (status IS NULL OR status != 'SUCCESS' AND status != 'FAILED' AND status != 'REVERSED' AND status != 'CANCELLED' AND status != 'EXPIRED') THEN coalesce(:new_receipt, receipt) ELSE :new_receipt END,
  fee=coalesce(:new_fee, CASE WHEN (status IS NULL OR status != 'SUCCESS' AND status != 'FAILED' AND status != 'REVERSED' AND status != 'CANCELLED' AND status != 'EXPIRED') THEN fee ELSE nullif(fee, '0') END),
  ended_at=:new_ended_at,
  learned_at=((julianday('now') - 2440587.5) * 86400.0),
  learned_at_service=:new_learned_at_service
WHERE account = :the_account
  AND transaction_id = :the_transaction_id
  AND (status IS NULL OR status != 'SUCCESS')

-- ADD_RECEIPT
UPDATE momopay_transactions
SET receipt=:new_receipt
WHERE account = :the_account
  AND transaction_id = :the_transaction_id
  AND receipt IS NULL

-- DELETE_TRANSACTION
DELETE FROM momopay_transactions
WHERE account = :the_account
  AND transaction_id = :the_transaction_id
  AND kind = :the_kind
  AND reference = :the_reference

CREATE INDEX momopay_history_by_delivery ON momopay_history (account, at) WHERE what IN ('delivered', 'delivery failed')

CREATE INDEX momopay_history_of_deliveries ON momopay_history (account, transaction_id) WHERE what IN ('delivered', 'delivery failed')

CREATE INDEX momopay_payments_to_search ON momopay_payments (account, search_after) WHERE search_after IS NOT NULL

CREATE INDEX momopay_refunds ON momopay_payments (account, refund_of) WHERE refund_of IS NOT NULL

CREATE INDEX momopay_transactions_by_end ON momopay_transactions (account, ended_at) WHERE (status IS NOT NULL AND NOT ((momopay_transactions.kind = 'PAYOUT' AND (status IS NULL OR status NOT IN ('SUCCESS', 'REVERSED', 'CANCELLED', 'EXPIRED'))) OR (momopay_transactions.kind = 'COLLECTION' AND (status IS NULL OR status NOT IN ('SUCCESS', 'FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED')))))

CREATE INDEX momopay_transactions_by_learning ON momopay_transactions (account, learned_at) WHERE (status IN ('SUCCESS', 'FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED'))

CREATE INDEX momopay_transactions_by_receipt ON momopay_transactions (account, receipt) WHERE receipt IS NOT NULL

CREATE INDEX momopay_transactions_not_settled ON momopay_transactions (account, sent_at) WHERE ((momopay_transactions.kind = 'PAYOUT' AND (status IS NULL OR status NOT IN ('SUCCESS', 'REVERSED', 'CANCELLED', 'EXPIRED'))) OR (momopay_transactions.kind = 'COLLECTION' AND (status IS NULL OR status NOT IN ('SUCCESS', 'FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED'))))

CREATE INDEX momopay_transactions_to_check ON momopay_transactions (account, ended_at) WHERE (checked_at IS NULL AND momopay_transactions.kind NOT IN ('PAYOUT') AND status IN ('FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED'))
