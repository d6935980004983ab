"""Programs that come with Ratchet: each is declared by a function, and sent into its sandbox as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

AT = "/program"


def shell() -> dict[str, Any]:
    """Solves a task by shell commands, one an answer, until the model says something that is none."""
    return {
        "command": ["python3", "-I", "-S", f"{AT}/shell.py"],
        "data": {f"{AT}/shell.py": (Path(__file__).parent / "shell.py").read_text(encoding="utf-8")},
        "limits": {"seconds": 300, "calls": 32},
    }
