"""`ratchet adapters`: its commands and its tables."""
