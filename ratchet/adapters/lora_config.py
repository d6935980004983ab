"""adapter_config.json as PEFT writes it: the fields that decide what a LoRA computes. What is allowed is not said here.

Rank and scaling of a module follow PEFT: `rank_pattern` and `alpha_pattern` go before `r` and `lora_alpha`, and the
first key that matches the end of the module's path as a regular expression counts (peft/utils/other.py,
get_pattern_key).
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ratchet.service.errors import AdapterError
from schemas.messages.base import explain

T = TypeVar("T")


class LoraConfig(BaseModel):
    """Fields that are not named here are kept, to be looked at by name."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    peft_type: str
    r: int
    lora_alpha: float = 8.0
    use_rslora: bool = False
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None
    target_modules: list[str] | str | None = None
    bias: str = "none"
    init_lora_weights: bool | str = True

    def option(self, name: str) -> Any:
        """A field by name; None if the file has no such field."""
        return (self.model_extra or {}).get(name)

    @property
    def targets(self) -> frozenset[str]:
        """Names of the adapted modules, without the path before them; empty if they are not listed by name."""
        listed = self.target_modules if isinstance(self.target_modules, list) else []
        return frozenset(target.rpartition(".")[2] for target in listed)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks it uses."""
        return (self.r, *(self.rank_pattern or {}).values())

    def rank(self, path: str) -> int:
        return _matching(self.rank_pattern, path, self.r)

    def scaling(self, path: str) -> float:
        """What B·A is multiplied with: alpha / r, with rsLoRA alpha / sqrt(r)."""
        rank = self.rank(path)
        return _matching(self.alpha_pattern, path, self.lora_alpha) / (math.sqrt(rank) if self.use_rslora else rank)


def read_lora_config(folder: Path) -> LoraConfig:
    """Raises AdapterError if there is none, or it is not that of a LoRA."""
    path = folder / "adapter_config.json"
    try:
        return LoraConfig.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise AdapterError(f"{path}: {explain('configuration of a LoRA', error)}: train a LoRA") from None
    except OSError as error:
        raise AdapterError(f"{path} can't be read ({error.strerror}): save the adapter again") from None


def _matching(pattern: dict[str, T] | None, path: str, default: T) -> T:
    for key, value in (pattern or {}).items():
        try:
            if re.match(rf"(.*\.)?({key})$", path):
                return value
        except re.error as error:
            raise AdapterError(
                f"adapter_config.json has the pattern {key!r}, which is none ({error}): train again"
            ) from None
    return default
