"""Rollouts: the endpoint that records a program's calls of the model, and what becomes of the program's run."""
