"""Answers that are held to a schema: how many are invalid, and what it costs."""
