"""`ratchet` as a user runs it: a process, with its output, its exit code and nothing shared but the environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.programs import REPOSITORY, Ran, environment, run_module

__all__ = ["REPOSITORY", "ForkedRatchet", "Ran", "Ratchet", "StartingRatchet"]


@dataclass(frozen=True)
class Ratchet:
    """`ratchet` in `folder`, where it finds no fleet but its own."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str, stdin: str | None = None, timeout_s: float = 180) -> Ran:
        ran = subprocess.run(
            [sys.executable, "-m", "services.cli", *arguments],
            cwd=self.folder,
            env=environment(self.environment),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr)


class ForkedRatchet(Ratchet):
    """The same as a fork, which saves a second of CPU a call."""

    def __call__(self, *arguments: str, stdin: str | None = None, timeout_s: float = 180) -> Ran:
        given = {"folder": self.folder, "settings": self.environment, "stdin": stdin or "", "timeout_s": timeout_s}
        return run_module("services.cli", *arguments, **given)


class StartingRatchet(ForkedRatchet):
    """`up` and `down` as processes of their own, all other commands as forks."""

    def __call__(self, *arguments: str, stdin: str | None = None, timeout_s: float = 180) -> Ran:
        kind = Ratchet if arguments[0] in ("up", "down") else ForkedRatchet
        return kind(self.folder, self.environment)(*arguments, stdin=stdin, timeout_s=timeout_s)
