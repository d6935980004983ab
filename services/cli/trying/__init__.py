"""`ratchet try`: what a fleet would make of a file of tasks."""
