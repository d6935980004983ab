"""`ratchet status`."""
