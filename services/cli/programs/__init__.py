"""What `ratchet programs` shows."""
