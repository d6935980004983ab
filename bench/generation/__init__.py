"""Tokens a second of the fleet's agent, over those of its bare engine at the same concurrency."""
