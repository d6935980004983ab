"""`ratchet audit`."""
