-- Version 1. What is here is frozen: databases were made by it.
CREATE TABLE momopay_accounts (
    account TEXT NOT NULL,
    mode TEXT NOT NULL,
    host TEXT NOT NULL,
    tenant_id TEXT,
    bound_at TEXT NOT NULL,
    PRIMARY KEY (account)
);
CREATE TABLE momopay_deliveries (
    account TEXT NOT NULL,
    transaction_id TEXT NOT NULL,
    claim TEXT NOT NULL,
    sender TEXT NOT NULL,
    machine TEXT NOT NULL,
    lease_seconds DOUBLE NOT NULL,
    lease_until DOUBLE NOT NULL,
    PRIMARY KEY (account, transaction_id)
);
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
);
CREATE INDEX momopay_history_by_delivery ON momopay_history (account, at)
    WHERE what IN ('delivered', 'delivery failed');
CREATE INDEX momopay_history_of ON momopay_history (account, reference);
CREATE INDEX momopay_history_of_deliveries ON momopay_history (account, transaction_id)
    WHERE what IN ('delivered', 'delivery failed');
CREATE TABLE momopay_journal (
    version INTEGER NOT NULL,
    restored INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (version)
);
CREATE TABLE momopay_keys (
    account TEXT NOT NULL,
    "key" TEXT NOT NULL,
    tenant_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    PRIMARY KEY (account, "key")
);
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
);
CREATE INDEX momopay_payments_by_phone ON momopay_payments (account, phone);
CREATE INDEX momopay_payments_by_state ON momopay_payments (account, state);
CREATE INDEX momopay_payments_by_time ON momopay_payments (account, created_at, kind, reference);
CREATE INDEX momopay_payments_by_wire_reference ON momopay_payments (account, wire_reference);
CREATE INDEX momopay_payments_to_search ON momopay_payments (account, search_after)
    WHERE search_after IS NOT NULL;
CREATE INDEX momopay_refunds ON momopay_payments (account, refund_of)
    WHERE refund_of IS NOT NULL;
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
);
CREATE INDEX momopay_transactions_by_end ON momopay_transactions (account, ended_at)
    WHERE (status IS NOT NULL AND NOT ((momopay_transactions.kind = 'PAYOUT' AND (status IS NULL OR status NOT IN ('SUCCESS', 'REVERSED', 'CANCELLED', 'EXPIRED')))
    OR (momopay_transactions.kind = 'COLLECTION' AND (status IS NULL OR status NOT IN ('SUCCESS', 'FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED')))));
CREATE INDEX momopay_transactions_by_receipt ON momopay_transactions (account, receipt)
    WHERE receipt IS NOT NULL;
CREATE INDEX momopay_transactions_not_settled ON momopay_transactions (account, sent_at)
    WHERE ((momopay_transactions.kind = 'PAYOUT' AND (status IS NULL OR status NOT IN ('SUCCESS', 'REVERSED', 'CANCELLED', 'EXPIRED')))
    OR (momopay_transactions.kind = 'COLLECTION' AND (status IS NULL OR status NOT IN ('SUCCESS', 'FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED'))));
CREATE INDEX momopay_transactions_of ON momopay_transactions (account, kind, reference);
CREATE INDEX momopay_transactions_to_check ON momopay_transactions (account, ended_at)
    WHERE (checked_at IS NULL AND momopay_transactions.kind NOT IN ('PAYOUT')
    AND status IN ('FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED'));
INSERT INTO momopay_journal (version, restored, sequence) VALUES (1, 0, 0);
