"""What every module may import: errors, settings, telemetry, metrics, failpoints. Imports nothing else of ratchet/."""
