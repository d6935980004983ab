"""Conversations of an agent with a model, token for token: pure, without a model, a network or a disk."""
