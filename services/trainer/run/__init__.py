"""One training run from its request to its published adapter: choices, checkpoints, progress, report."""
