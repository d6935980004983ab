"""`ratchet dead-letters`."""
