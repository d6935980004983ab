"""`ratchet cascade`."""
