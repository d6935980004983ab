"""Which Hugging Face model folders there are. Reads their configuration only, never a weight."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelFolder:
    path: str
    architecture: str
    megabytes: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def model_folders(folder: Path) -> list[ModelFolder]:
    """Each direct sub-folder with a `config.json`."""
    return [_read(config.parent) for config in sorted(folder.glob("*/config.json"))]


def _read(folder: Path) -> ModelFolder:
    try:
        architectures = json.loads((folder / "config.json").read_text()).get("architectures") or ["?"]
    except (ValueError, AttributeError):
        architectures = ["unreadable config.json"]
    size = sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
    return ModelFolder(str(folder), architectures[0], size / 1e6)
