"""Reads, draws and replays experiments for `ratchet experiment`."""
