"""The promotion decision: pure, fed unit by unit, the same live and replayed."""
