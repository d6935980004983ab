"""What `ratchet watch` and `ratchet status` ask for and show."""
