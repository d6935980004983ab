"""`ratchet` as a user runs it: a process, with its output, its exit code and nothing shared but the environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ratchet:
    """Runs in `folder`, where it finds no fleet but its own."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, stdin: str | None = None, timeout_s: float = 90) -> Ran:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("RATCHET_")}
        ran = subprocess.run(
            [sys.executable, "-m", "ratchet.cli", *arguments],
            cwd=self.folder,
            env={**inherited, "PYTHONPATH": str(REPOSITORY), "COLUMNS": "200", **self.environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)
