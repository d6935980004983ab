"""adapter_config.json as PEFT writes it: the fields that decide what a LoRA computes. What is allowed is not said here.

Rank and scaling of a module follow PEFT: `rank_pattern` and `alpha_pattern` go before `r` and `lora_alpha`, and the
first key that matches the end of the module's path counts. PEFT runs keys as regular expressions; here a key is the end
of a path, written out, dots escaped or not, and any other is a fault (`bad_patterns`): what is no expression can't take
for ever.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ratchet.adapters.folder import CONFIG_NAME, parsed_json, read_file
from ratchet.service.errors import AdapterError
from schemas.messages.base import explain

T = TypeVar("T")

MODULE_PATH = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")


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
    exclude_modules: list[str] | str | None = None
    layers_to_transform: list[int] | int | None = None
    fan_in_fan_out: bool = False
    lora_dropout: float = 0.0
    bias: str = "none"
    init_lora_weights: bool | str = True

    @property
    def further(self) -> Mapping[str, Any]:
        """The fields that are not named here."""
        return self.model_extra or {}

    @property
    def targets(self) -> frozenset[str]:
        """Names of the adapted modules, without the path before them; empty if they are not listed by name."""
        listed = self.target_modules if isinstance(self.target_modules, list) else []
        return frozenset(target.rpartition(".")[2] for target in listed)

    @property
    def ranks(self) -> tuple[int, ...]:
        """All ranks it uses."""
        return (self.r, *(self.rank_pattern or {}).values())

    @property
    def patterns(self) -> tuple[str, ...]:
        return (*(self.rank_pattern or {}), *(self.alpha_pattern or {}))

    @property
    def bad_patterns(self) -> tuple[str, ...]:
        """Keys that are not simply the end of a module's path."""
        return tuple(key for key in self.patterns if not MODULE_PATH.fullmatch(written_out(key)))

    def rank(self, path: str) -> int:
        return _matching(self.rank_pattern, path, self.r)

    def scaling(self, path: str) -> float:
        """Return what B·A is multiplied with: alpha / r, with rsLoRA alpha / sqrt(r)."""
        rank = self.rank(path)
        return _matching(self.alpha_pattern, path, self.lora_alpha) / (math.sqrt(rank) if self.use_rslora else rank)


def read_lora_config(folder: Path) -> LoraConfig:
    """Raises AdapterError if there is none, or it is not that of a LoRA."""
    path = folder / CONFIG_NAME
    try:
        return LoraConfig.model_validate(parsed_json(read_file(folder, CONFIG_NAME)))
    except ValidationError as error:
        raise AdapterError(f"{path}: {explain('configuration of a LoRA', error)}: train a LoRA") from None
    except OSError as error:
        raise AdapterError(f"{path} can't be read ({error.strerror}): restore it, or roll back") from None
    except (ValueError, RecursionError) as error:
        raise AdapterError(f"{path} is no JSON ({error}): save the adapter again") from None


def written_out(key: str) -> str:
    """A key of a pattern without the backslashes that make its dots plain dots."""
    return key.replace("\\.", ".")


def _matching(pattern: dict[str, T] | None, path: str, default: T) -> T:
    for key, value in (pattern or {}).items():
        if path == (end := written_out(key)) or path.endswith(f".{end}"):
            return value
    return default
