"""The operations, as the service groups them: each says its path, body, record and repeat rule."""
