"""Keeps the fleet's append-only logs, and files that change atomically or under a lock."""
