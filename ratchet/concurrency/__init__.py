"""Locks and futures that coroutines of one process wait with."""
