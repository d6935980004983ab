"""`ratchet feedback`."""
