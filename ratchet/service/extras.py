"""Says what to type where a library of an extra is missing: Ratchet is on no package index, but installed from a
clone."""

from __future__ import annotations

LEFT_TO_PIP = frozenset({"bench", "qlora", "vllm"})
"""Extras that `make setup` does not install."""


def to_install(extra: str) -> str:
    """The end of a sentence, for an extra of pyproject.toml."""
    by_pip = f"pip install -e '.[{extra}]' in the clone"
    return by_pip if extra in LEFT_TO_PIP else f"make setup, or {by_pip}"
