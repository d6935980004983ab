"""Training runs on disk: asked for, under way, ended. The trainer writes them, the orchestrator looks at them too."""
