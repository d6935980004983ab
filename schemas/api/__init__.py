"""The bodies of the orchestrator's REST API: one module per subject, pydantic only."""
