"""`ratchet up`."""
