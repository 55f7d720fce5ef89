"""The rate budget of one API key, and waiting for a slot in it."""
