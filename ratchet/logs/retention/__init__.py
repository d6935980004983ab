"""Keeps the logs within their bound: what may go, what is needed still, and how it goes without a trace of harm."""
