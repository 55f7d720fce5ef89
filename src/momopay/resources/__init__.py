"""The operations of a client, one module for each group of endpoints."""
