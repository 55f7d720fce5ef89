"""Waiting for transactions to end by polling, one poll round for all waits on a client."""
