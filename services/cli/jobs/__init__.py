"""`ratchet jobs`."""
