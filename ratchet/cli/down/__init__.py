"""`ratchet down`."""
