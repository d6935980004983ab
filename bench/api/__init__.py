"""The orchestrator's API under load: `POST /v1/tasks` beside a bare handler, and a thousand clients of its events."""
