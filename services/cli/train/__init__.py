"""Asks for trainings, runs and shows them, for `ratchet train`."""
