"""One call: configuration, attempts, retries, responses. Knows no endpoint."""
