"""`ratchet models`."""
