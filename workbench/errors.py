"""The errors of the workbench. Each message says what happened, to what, and what to do about it."""

from __future__ import annotations


class WorkbenchError(Exception):
    """Root of the tree."""


class PolicyError(WorkbenchError):
    """A policy, or the place of an audit, can't be used."""
