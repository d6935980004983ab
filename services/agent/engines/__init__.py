"""The engines of an agent: one class an engine, found by name.

To add one: a class that fits `Engine` or `BatchEngine` (engine.py), in a file beside echo.py or in another package, and
a line under `[project.entry-points."ratchet.engines"]` (or `ratchet.batch_engines`) in pyproject.toml.
"""
