"""Imported by every module: errors, settings, telemetry, metrics, failpoints. Imports nothing else of ratchet/."""
