"""Finds what installed packages register by entry points, and imports it only when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from ratchet.service.errors import RatchetError

LEFT_TO_PIP = frozenset({"bench", "qlora", "vllm"})
"""Extras that `make setup` does not install."""


def to_install(extra: str) -> str:
    """The end of a sentence, for an extra of pyproject.toml."""
    by_pip = f"pip install -e '.[{extra}]' in the clone"
    return by_pip if extra in LEFT_TO_PIP else f"make setup, or {by_pip}"


@dataclass(frozen=True, slots=True)
class EntryPoints:
    """A group of entry points. `what` one of them is called in a sentence, `error` is raised where one can't be had;
    `extra` is what of pyproject.toml installs what ours need."""

    group: str
    what: str
    error: type[RatchetError]
    extra: str | None = None

    @property
    def names(self) -> frozenset[str]:
        return frozenset(entry_points(group=self.group).names)

    def require(self, name: str) -> None:
        """Raises `error` where there is none of that name. Imports nothing."""
        if name not in (names := self.names):
            raise self.error(f"there is no {self.what} {name!r}; installed are {', '.join(sorted(names)) or 'none'}")

    def load(self, name: str) -> Any:
        """Raises `error` where there is none of that name, or it can't be imported."""
        self.require(name)
        try:
            return entry_points(group=self.group)[name].load()
        except (ImportError, AttributeError) as error:
            hint = f": {to_install(self.extra)}" if self.extra else ""
            raise self.error(f"{self.what} {name!r} can't be loaded ({error}){hint}") from error
