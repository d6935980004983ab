"""What a check of `ratchet doctor` comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """`fix` is what to type, or to do; None where nothing needs to be done."""

    name: str
    level: Level
    says: str
    fix: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def sound(checks: Sequence[Check]) -> bool:
    """A warning does not keep the fleet from working; a failed check does."""
    return all(check.level != "fail" for check in checks)
