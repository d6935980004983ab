"""What every process has: errors, settings, telemetry, metrics. Imports nothing else of ours."""
