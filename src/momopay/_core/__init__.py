"""One call: configuration, attempts, retries, responses; and the reads that several packages use."""
