"""The rules of the house: style, types, and who may import whom."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy"],
        ["lint-imports"],
    ],
    ids=" ".join,
)
@pytest.mark.timeout(600)
def test_the_tree_is_clean(command: list[str]) -> None:
    run = subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stdout + run.stderr


def test_a_file_shared_by_all_containers_imports_none_of_them() -> None:
    containers = [folder.name for folder in (ROOT / "services").iterdir() if (folder / "__init__.py").exists()]
    imports = re.compile(rf"^\s*(?:from|import) services\.(?:{'|'.join(containers)})\b", re.MULTILINE)

    guilty = [path.name for path in (ROOT / "services").glob("*.py") if imports.search(path.read_text())]

    assert len(containers) >= 4
    assert guilty == []


def test_the_orchestrator_and_the_command_line_start_without_torch() -> None:
    code = (
        "import sys, services.orchestrator.__main__, services.cli.__main__;"
        "sys.exit(next((name for name in ('torch', 'transformers', 'peft') if name in sys.modules), 0))"
    )

    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr
