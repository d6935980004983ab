"""Runs a process: starts what it wired, serves HTTP, watches its loop, ends in order. Imports the rest of ratchet/."""
