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

CREATE TABLE momopay_acceptances (
  account TEXT NOT NULL,
  at TEXT NOT NULL,
  by_whom TEXT NOT NULL,
  PRIMARY KEY (account, at)
)

CREATE TABLE momopay_accounts (
  account TEXT NOT NULL,
  mode TEXT NOT NULL,
  host TEXT NOT NULL,
  tenant_id TEXT,
  bound_at TEXT NOT NULL,
  sequence INTEGER DEFAULT 0 NOT NULL,
  restored INTEGER DEFAULT 0 NOT NULL,
  checked INTEGER DEFAULT 1 NOT NULL,
  PRIMARY KEY (account)
)

CREATE TABLE momopay_deliveries (
  account TEXT NOT NULL,
  transaction_id TEXT NOT NULL,
  claim TEXT NOT NULL,
  sender TEXT NOT NULL,
  machine TEXT NOT NULL,
  lease_seconds DOUBLE NOT NULL,
  lease_until DOUBLE NOT NULL,
  PRIMARY KEY (account, transaction_id)
)

CREATE TABLE momopay_history (
  number INTEGER NOT NULL,
  account TEXT NOT NULL,
  kind TEXT NOT NULL,
  reference TEXT NOT NULL,
  at DOUBLE NOT NULL,
  service_time TEXT,
  what TEXT NOT NULL,
  "before" TEXT,
  "after" TEXT,
  transaction_id TEXT,
  attempt INTEGER,
  source TEXT,
  by_whom TEXT,
  PRIMARY KEY (number)
)

CREATE TABLE momopay_journal (
  version INTEGER NOT NULL,
  restored INTEGER NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY (version)
)

CREATE TABLE momopay_keys (
  account TEXT NOT NULL,
  "key" TEXT NOT NULL,
  tenant_id TEXT NOT NULL,
  scope TEXT NOT NULL,
  PRIMARY KEY (account, "key")
)

CREATE TABLE momopay_moves (
  id TEXT NOT NULL,
  place TEXT NOT NULL,
  other TEXT NOT NULL,
  begun_at TEXT NOT NULL,
  done_at TEXT,
  undone_at TEXT,
  PRIMARY KEY (id)
)

CREATE TABLE momopay_payments (
  account TEXT NOT NULL,
  kind TEXT NOT NULL,
  reference TEXT NOT NULL,
  amount TEXT NOT NULL,
  phone TEXT NOT NULL,
  state TEXT NOT NULL,
  seen_id TEXT,
  code TEXT,
  attempts INTEGER NOT NULL,
  idempotency_key TEXT,
  key_since TEXT,
  key_number INTEGER DEFAULT '1' NOT NULL,
  created_at TEXT NOT NULL,
  sent_at TEXT NOT NULL,
  released_by TEXT,
  released_at TEXT,
  search_after DOUBLE,
  metadata TEXT,
  wire_reference TEXT NOT NULL,
  refund_of TEXT,
  paid_before TEXT,
  clock_offset DOUBLE,
  revision INTEGER NOT NULL,
  claim TEXT NOT NULL,
  sender TEXT NOT NULL,
  machine TEXT NOT NULL,
  lease_seconds DOUBLE NOT NULL,
  lease_until DOUBLE NOT NULL,
  PRIMARY KEY (account, kind, reference)
)

CREATE TABLE momopay_transactions (
  account TEXT NOT NULL,
  transaction_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  reference TEXT NOT NULL,
  amount TEXT NOT NULL,
  phone TEXT NOT NULL,
  status TEXT,
  result_code TEXT,
  receipt TEXT,
  fee TEXT,
  sent_at TEXT NOT NULL,
  ended_at TEXT,
  learned_at DOUBLE,
  learned_at_service TEXT,
  checked_at TEXT,
  PRIMARY KEY (account, transaction_id)
)

CREATE TABLE momopay_versions (
  version INTEGER NOT NULL,
  oldest_writer INTEGER NOT NULL,
  since TEXT NOT NULL,
  PRIMARY KEY (version)
)

CREATE INDEX momopay_history_by_delivery ON momopay_history (account, at) WHERE what IN ('delivered', 'delivery failed')

CREATE INDEX momopay_history_of ON momopay_history (account, reference)

CREATE INDEX momopay_history_of_deliveries ON momopay_history (account, transaction_id) WHERE what IN ('delivered', 'delivery failed')

CREATE INDEX momopay_payments_by_phone ON momopay_payments (account, phone)

CREATE INDEX momopay_payments_by_state ON momopay_payments (account, state)

CREATE INDEX momopay_payments_by_time ON momopay_payments (account, created_at, kind, reference)

CREATE INDEX momopay_payments_by_wire_reference ON momopay_payments (account, wire_reference)

CREATE INDEX momopay_payments_to_search ON momopay_payments (account, search_after) WHERE search_after IS NOT NULL

CREATE INDEX momopay_refunds ON momopay_payments (account, refund_of) WHERE refund_of IS NOT NULL

CREATE INDEX momopay_transactions_by_end ON momopay_transactions (account, ended_at) WHERE (status IS NOT NULL AND NOT ((momopay_transactions.kind = 'PAYOUT' AND (status IS NULL OR status NOT IN ('SUCCESS', 'REVERSED', 'CANCELLED', 'EXPIRED'))) OR (momopay_transactions.kind = 'COLLECTION' AND (status IS NULL OR status NOT IN ('SUCCESS', 'FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED')))))

CREATE INDEX momopay_transactions_by_learning ON momopay_transactions (account, learned_at) WHERE (status IN ('SUCCESS', 'FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED'))

CREATE INDEX momopay_transactions_by_receipt ON momopay_transactions (account, receipt) WHERE receipt IS NOT NULL

CREATE INDEX momopay_transactions_not_settled ON momopay_transactions (account, sent_at) WHERE ((momopay_transactions.kind = 'PAYOUT' AND (status IS NULL OR status NOT IN ('SUCCESS', 'REVERSED', 'CANCELLED', 'EXPIRED'))) OR (momopay_transactions.kind = 'COLLECTION' AND (status IS NULL OR status NOT IN ('SUCCESS', 'FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED'))))

CREATE INDEX momopay_transactions_of ON momopay_transactions (account, kind, reference)

CREATE INDEX momopay_transactions_to_check ON momopay_transactions (account, ended_at) WHERE (checked_at IS NULL AND momopay_transactions.kind NOT IN ('PAYOUT') AND status IN ('FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED'))
