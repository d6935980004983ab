"""The scorers: one class a strategy, found by name.

To add one: a class that fits `Strategy` (strategy.py), in a file beside verifier.py or in a package of its own, and a
line under `[project.entry-points."ratchet.scorers"]` in pyproject.toml.
"""
