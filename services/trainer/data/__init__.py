"""From the logs to training samples: read (journal_scan.py), filter, select, refuse what can't be learned from."""
