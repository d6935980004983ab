"""What `ratchet adapters` decides and shows."""
