"""What the orchestrator knows of its tasks: the two logs, the index over them, and their bound."""
