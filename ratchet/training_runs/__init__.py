"""Training runs: one model of them (run.py), their folders on disk (store.py), and the API that shows them (api.py).

The trainer writes the folders, the orchestrator reads them; what a run reports on its way is in
progress.py, what it left beside its adapter in report.py.
"""
