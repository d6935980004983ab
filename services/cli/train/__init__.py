"""What `ratchet train` asks for, runs and shows."""
