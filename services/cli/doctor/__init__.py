"""Holds the checks of `ratchet doctor`, each with its fix."""
