"""Logs with an index over them: all the orchestrator knows of its tasks, lines with a key, and their bound."""
