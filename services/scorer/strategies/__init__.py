"""How answers are scored: one class a strategy, found by name through the entry points `ratchet.scorers`."""
