"""What the orchestrator's REST API answers and takes: one module per subject, pydantic only."""
