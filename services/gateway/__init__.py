"""One address for the API of a fleet with a standby: connections go to the orchestrator that leads."""
