"""Training runs: the type of a run (run.py), its folder (store.py), how it goes (progress.py), the API (api.py).

The trainer writes the folders; orchestrator and command line read them.
"""
