"""`ratchet programs`: its commands and its tables."""
