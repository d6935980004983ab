"""A synchronous client of the fleet, and what `ratchet submit` does with it."""
