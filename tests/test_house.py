"""The rules of the house: style, types, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
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


def test_every_folder_of_services_starts_and_no_file_lies_beside_them() -> None:
    services = ROOT / "services"
    folders = [path for path in services.iterdir() if path.is_dir() and path.name != "__pycache__"]

    assert [folder.name for folder in folders if not (folder / "__main__.py").exists()] == []
    assert {path.name for path in services.iterdir() if path.is_file()} == {"Dockerfile", "__init__.py"}


def test_no_file_lies_beside_the_subjects_that_processes_share() -> None:
    assert [path.name for path in (ROOT / "ratchet").iterdir() if path.is_file()] == ["__init__.py"]


def test_no_two_folders_import_each_other() -> None:
    """Save a folder and one within it."""
    imports = {pair for top in ("schemas", "ratchet", "services") for pair in folder_imports(ROOT / top)}
    mutual = [(one, other) for one, other in imports if (other, one) in imports and one < other]

    assert len(imports) > 100
    assert [pair for pair in mutual if pair[0] not in pair[1].parents] == []


def folder_imports(top: Path) -> Iterator[tuple[Path, Path]]:
    """Which folder imports from which, at the top of a module or within a function."""
    for file in top.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [f"{node.module}.{name.name}" for name in node.names] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                module = ROOT.joinpath(*name.split("."))
                if module.with_suffix(".py").exists() and module.parent != file.parent:
                    yield file.parent, module.parent


def test_the_orchestrator_and_the_command_line_start_without_torch() -> None:
    code = (
        "import sys, services.orchestrator.__main__, ratchet.cli.__main__;"
        "sys.exit(next((name for name in ('torch', 'transformers', 'peft') if name in sys.modules), 0))"
    )

    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)

    assert run.returncode == 0, run.stderr


def test_every_test_has_a_name_of_its_own(request: pytest.FixtureRequest) -> None:
    """Where processes share the tests, only one is run of those with the same name."""
    names = Counter(item.nodeid for item in request.session.items)

    assert [name for name, count in names.items() if count > 1] == []
