"""`ratchet result`."""
