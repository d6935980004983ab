"""The orchestrator's side of training: when one is asked for (trigger.py), and every run that is known of."""
