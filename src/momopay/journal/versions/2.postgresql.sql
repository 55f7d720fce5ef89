-- Version 2. Each account has a watermark of its own, so that the accounts of a database do not wait for each other.
-- Processes of version 1 that have the journal open may write on: they raise momopay_journal.sequence, and read no new
-- column or table. An account that they bind is checked: nobody asks whether it had payments before this journal.
ALTER TABLE momopay_accounts ADD COLUMN sequence INTEGER DEFAULT 0 NOT NULL;
ALTER TABLE momopay_accounts ADD COLUMN restored INTEGER DEFAULT 0 NOT NULL;
ALTER TABLE momopay_accounts ADD COLUMN checked INTEGER DEFAULT 1 NOT NULL;
CREATE TABLE momopay_versions (
    version INTEGER NOT NULL,
    oldest_writer INTEGER NOT NULL,
    since TEXT NOT NULL,
    PRIMARY KEY (version)
);
CREATE TABLE momopay_acceptances (
    account TEXT NOT NULL,
    at TEXT NOT NULL,
    by_whom TEXT NOT NULL,
    PRIMARY KEY (account, at)
);
CREATE TABLE momopay_moves (
    id TEXT NOT NULL,
    place TEXT NOT NULL,
    other TEXT NOT NULL,
    begun_at TEXT NOT NULL,
    done_at TEXT,
    undone_at TEXT,
    PRIMARY KEY (id)
);
CREATE INDEX momopay_transactions_by_learning ON momopay_transactions (account, learned_at)
    WHERE (status IN ('SUCCESS', 'FAILED', 'REVERSED', 'CANCELLED', 'EXPIRED'));
UPDATE momopay_journal SET version = 2;
INSERT INTO momopay_versions (version, oldest_writer, since) VALUES (2, 1, CURRENT_TIMESTAMP);
