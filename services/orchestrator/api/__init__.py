"""The orchestrator's REST API: one file per subject."""
