"""What goes out and what comes in: requests that refuse, records that keep everything."""
