"""python -m tests.house_figures: the size and the shape of the code before and after record 0023, into its table.

Counts the Python of schemas/, ratchet/ and services/. Two folders import each other if files of theirs do; one
inside the other does not count.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from statistics import median

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "docs" / "decisions" / "0023-processes-and-what-they-share.md"
BEFORE = "ad8bfd4"
CODE = ("schemas", "ratchet", "services")

LOG_NAMES = {"assignments", "agent_interactions", "assignments.jsonl", "agent_interactions.jsonl", "feedback.jsonl"}
"""`feedback` is a queue and a command as well."""
FILES_BESIDE_THE_LOGS = {"quarantine.jsonl", "retention.json", "index.sqlite", "feedback.sqlite"}

_CHOICE = re.compile(r"\b(?:max|min|sorted)\([^\n]*key=(?:lambda \w+: \(?)?(?:-?1\.0 if|_rank|_score|scores\.)")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def python_files(commit: str | None) -> dict[str, str]:
    """Path and text of each Python file of the code, at a commit or as it lies here."""
    if commit is None:
        paths = [path for top in CODE for path in sorted((ROOT / top).rglob("*.py"))]
        return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    names = git("ls-tree", "-r", "--name-only", commit).splitlines()
    return {
        name: git("show", f"{commit}:{name}") for name in names if name.endswith(".py") and name.split("/")[0] in CODE
    }


def log_names(files: dict[str, str]) -> list[str]:
    """Files that name a log, or one of the files beside them."""
    names = LOG_NAMES | FILES_BESIDE_THE_LOGS
    return [path for path, text in files.items() if any(name in names for name in _strings(text))]


def _strings(text: str) -> Iterator[str]:
    constants = (node for node in _nodes(text) if isinstance(node, ast.Constant))
    return (node.value for node in constants if isinstance(node.value, str))


@cache
def _nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(text)))


def choices(files: dict[str, str]) -> list[str]:
    """Files that choose the best answer of a group by its score."""
    return [path for path, text in files.items() if _CHOICE.search(text)]


def mutual(imports: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of folders, neither inside the other, of which each imports the other."""
    pairs = [(one, other) for one, other in sorted(imports) if (other, one) in imports and one < other]
    return [(one, other) for one, other in pairs if not other.startswith(f"{one}/")]


def folder_imports(files: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Which folder imports from which, at the top of a module or within a function."""
    for path, text in files.items():
        folder = str(PurePosixPath(path).parent)
        for node in _nodes(text):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [f"{node.module}.{name.name}" for name in node.names] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            for module in (PurePosixPath(*name.split(".")) for name in names):
                if f"{module}.py" in files and str(module.parent) != folder:
                    yield folder, str(module.parent)


def figures(commit: str | None) -> dict[str, str]:
    files = python_files(commit)
    lengths = sorted((len(text.splitlines()), path) for path, text in files.items())
    lines = [length for length, _ in lengths]
    readme = git("show", f"{commit}:README.md") if commit else (ROOT / "README.md").read_text()
    return {
        "Python files": f"{len(files):,}",
        "lines of Python": f"{sum(lines):,}",
        "lines of the median file": f"{median(lines):g}",
        "lines of the longest file": f"{lines[-1]} (`{PurePosixPath(lengths[-1][1]).name}`)",
        "files under 40 lines": f"{sum(length < 40 for length in lines)}",
        "pairs of folders that import each other": f"{len(mutual(set(folder_imports(files))))}",
        "files that name a log": f"{len(log_names(files))}",
        "files that choose the best answer": f"{len(choices(files))}",
        "bytes of the README": f"{len(readme.encode()):,}",
    }


def table() -> str:
    before, after = figures(BEFORE), figures(None)
    rows = [f"| {name} | {before[name]} | {after[name]} |" for name in before]
    return "\n".join(["| | before | after |", "| --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    head, _, rest = RECORD.read_text().partition("<!-- house -->\n")
    RECORD.write_text(f"{head}<!-- house -->\n{table()}<!-- /house -->{rest.partition('<!-- /house -->')[2]}")
    sys.stdout.write(table())
