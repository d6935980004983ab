"""Asks several versions the same tasks for `ratchet eval`, compares the answers, and shows the differences."""
