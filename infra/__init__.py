"""The fleet on Kubernetes, as a Pulumi program. It imports nothing of the fleet: settings and queues are names."""
