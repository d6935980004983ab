"""The algorithms: what is learned from scored answers, and with which loss. One file for each algorithm, found by name.

To add one: a class that fits `Algorithm` (algorithm.py), in a file beside supervised.py or in a
package of its own, and a line under `[project.entry-points."ratchet.algorithms"]` in pyproject.toml.
"""
