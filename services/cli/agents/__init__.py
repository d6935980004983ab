"""`ratchet agents`."""
