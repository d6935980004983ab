"""python -m tests.house: the size and the shape of the house, before and after, into the tables of record 0081.

Product code is the Python of schemas/, ratchet/ and services/. Each figure is read off the source: nothing is
imported. `tests/test_house.py` holds the code to the record: totals may not pass what the record says by more than
`SLACK`, and no docstring may be a fragment, nor a function be named by a bare participle.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "docs" / "decisions" / "0081-the-figures-of-the-house.md"
BEFORE = "e3645897"
CODE = ("schemas", "ratchet", "services", "workbench", "demos", "examples")
NO_PRODUCT = ("workbench", "demos", "examples")
"""Folders that are counted beside the product."""
ONE_ROW = ("bench", "demos", "examples", "schemas", "tests")
"""Folders whose subfolders have no row of their own."""
COUNTED = (*CODE, "bench", "tests")
IN_PLAIN_WORDS = (*CODE, "bench", "infra")
"""Folders without fragments and bare participles; tests, which are to read as prose, may have them."""
SLACK = 0.01
"""The part by which a total may pass the record before `python -m tests.house` has to be typed."""

FRAGMENT = re.compile(
    r"\s*(?:Of|As|By|What|Whatever|Whoever|Where|Wherever|In|For|Beside|Who|Whom|Whose|Which|Whichever|Whether|How|Why|"
    r"After|Also|And|Before|Once|Or|Until|Within)\b"
)
"""The beginning of a docstring that is no sentence and no noun phrase."""
PARTICIPLE = re.compile(
    r"_*(?:(?!(?:embed|exceed|feed|heed|need|proceed|seed|shed|speed|succeed)_*$)[a-z]{2,}ed|begun|bound|brought|built|"
    r"chosen|done|drawn|driven|felt|forgotten|found|given|gone|got|grown|heard|held|hidden|kept|known|laid|led|left|"
    r"lost|made|meant|met|paid|said|seen|sent|shown|sought|spent|taken|taught|thought|thrown|told|torn|won|worn|"
    r"written)_*"
)
"""The name of a function that says neither what it returns nor what it does."""

LOG_NAMES = {"assignments", "agent_interactions", "assignments.jsonl", "agent_interactions.jsonl", "feedback.jsonl"}
"""`feedback` is a queue and a command as well."""
FILES_BESIDE_THE_LOGS = {"quarantine.jsonl", "retention.json", "index.sqlite", "feedback.sqlite"}

COMMENT = re.compile(r"^\s*#(?! (?:noqa|type:|fmt:))", re.MULTILINE)
_CHOICE = re.compile(r"\b(?:max|min|sorted)\([^\n]*key=(?:lambda \w+: \(?)?(?:-?1\.0 if|_rank|_score|scores\.)")


def files_of(commit: str | None = None) -> dict[str, str]:
    """Path and text of every Python file and document, at a commit or as it lies here."""
    if commit is None:
        tops = (ROOT / top for top in (*COUNTED, "infra", "docs"))
        paths = [path for top in tops for path in sorted(top.rglob("*")) if path.suffix in (".py", ".md")]
        paths += [ROOT / "README.md", ROOT / "CHANGELOG.md"]
        return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [member for member in archive if member.isfile() and member.name.endswith((".py", ".md"))]
        return {member.name: _text(archive, member) for member in members}


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    file = archive.extractfile(member)
    assert file is not None
    return file.read().decode()


def python_files(files: Mapping[str, str] | None = None) -> dict[str, str]:
    """Path and text of the product's Python files, the workbench and the examples among them."""
    found = files_of() if files is None else files
    return {path: text for path, text in found.items() if path.endswith(".py") and path.split("/")[0] in CODE}


def log_names(files: Mapping[str, str]) -> list[str]:
    """Files that name a log, or one of the files beside them."""
    names = LOG_NAMES | FILES_BESIDE_THE_LOGS
    return [path for path, text in files.items() if any(name in names for name in _strings(text))]


def _strings(text: str) -> Iterator[str]:
    constants = (node for node in _nodes(text) if isinstance(node, ast.Constant))
    return (node.value for node in constants if isinstance(node.value, str))


@cache
def _nodes(text: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(text)))


def choices(files: Mapping[str, str]) -> list[str]:
    """Files that choose the best answer of a group by its score."""
    return [path for path, text in files.items() if _CHOICE.search(text)]


def mutual(imports: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of folders, neither inside the other, of which each imports the other."""
    pairs = [(one, other) for one, other in sorted(imports) if (other, one) in imports and one < other]
    return [(one, other) for one, other in pairs if not other.startswith(f"{one}/")]


def folder_imports(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield which folder imports from which, at the top of a module or within a function."""
    for path, imported in module_imports(files):
        one, other = str(PurePosixPath(path).parent), str(PurePosixPath(imported).parent)
        if one != other:
            yield one, other


def module_imports(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield which file imports which, at the top of a module or within a function."""
    for path, text in files.items():
        for node in _nodes(text):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [f"{node.module}.{name.name}" for name in node.names] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            for module in (f"{name.replace('.', '/')}.py" for name in names):
                if module in files:
                    yield path, module


def fragments(text: str) -> list[str]:
    """Docstrings, those of fields among them, that match `FRAGMENT`."""
    documented = (node.value for node in _nodes(text) if isinstance(node, ast.Expr))
    docstrings = (node.value for node in documented if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return [one for one in docstrings if FRAGMENT.match(one)]


def participles(text: str) -> list[str]:
    """Functions whose name is a participle and nothing else; a property may be one, for it names a state."""
    functions = (node for node in _nodes(text) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [node.name for node in functions if PARTICIPLE.fullmatch(node.name) and not _is_property(node)]


def bad_words(files: Mapping[str, str]) -> dict[str, list[str]]:
    """Fragments and bare participles by the file of `IN_PLAIN_WORDS` that has them."""
    code = {path: text for path, text in files.items() if path.endswith(".py") and path.split("/")[0] in IN_PLAIN_WORDS}
    found = {path: [*fragments(text), *participles(text)] for path, text in code.items()}
    return {path: words for path, words in found.items() if words}


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any("property" in one or one.endswith(".setter") for one in decorators)


class Figures(NamedTuple):
    """The figures of a folder."""

    files: int
    lines: int


def folder_of(path: str) -> str:
    """The row of a file: its first two folders, or the first where it lies right in it or is one of `ONE_ROW`."""
    parts = path.split("/")
    return parts[0] if len(parts) == 2 or parts[0] in ONE_ROW else "/".join(parts[:2])


def folders(files: Mapping[str, str]) -> dict[str, Figures]:
    """The figures of each folder that has Python."""
    texts = defaultdict[str, list[str]](list)
    for path, text in sorted(files.items()):
        if path.endswith(".py") and path.split("/")[0] in COUNTED:
            texts[folder_of(path)].append(text)
    return {
        folder: Figures(len(inside), sum(len(text.splitlines()) for text in inside)) for folder, inside in texts.items()
    }


def totals(files: Mapping[str, str]) -> dict[str, int]:
    """The figures of the whole house, by the name of their row."""
    by_folder, code = folders(files), python_files(files)
    product = {path: text for path, text in code.items() if path.split("/")[0] not in NO_PRODUCT}
    importers = Counter(imported for _, imported in set(module_imports(code)))
    functions = [
        node
        for text in product.values()
        for node in _nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    def lines(top: str) -> int:
        return sum(found.lines for folder, found in by_folder.items() if folder.split("/")[0] == top)

    return {
        "lines of product code": sum(len(text.splitlines()) for text in product.values()),
        "lines of the workbench": lines("workbench"),
        "lines of examples and demos": lines("examples") + lines("demos"),
        "lines of tests": lines("tests"),
        "lines of benchmarks": lines("bench"),
        "files of product code": len(product),
        "files that one other file imports": sum(importers[path] == 1 for path in product),
        "files under 80 lines": sum(len(text.splitlines()) < 80 for text in product.values()),
        "classes": sum(isinstance(node, ast.ClassDef) for text in product.values() for node in _nodes(text)),
        "functions": len(functions),
        "functions with a docstring": sum(ast.get_docstring(node) is not None for node in functions),
        "lines that are a comment": sum(len(COMMENT.findall(text)) for text in product.values()),
        "docstrings that are fragments": sum(len(fragments(text)) for text in code.values()),
        "functions named by a bare participle": sum(len(participles(text)) for text in code.values()),
        "bytes of documents": sum(len(text.encode()) for path, text in files.items() if _is_document(path)),
    }


def _is_document(path: str) -> bool:
    return path.endswith(".md") and (path.startswith("docs/") or path in ("README.md", "CHANGELOG.md"))


def recorded() -> tuple[dict[str, int], dict[str, Figures]]:
    """The totals and the figures of each folder that the record has in its columns of after."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in RECORD.read_text().splitlines()]
    whole = {row[0]: _number(row[2]) for row in rows if len(row) == 3 and row[2].replace(",", "").isdigit()}
    of_folders = {
        row[0]: Figures(*map(_number, row[2::2]))
        for row in rows
        if len(row) == 5 and row[-1].replace(",", "").isdigit()
    }
    return whole, of_folders


def _number(cell: str) -> int:
    return int(cell.replace(",", "") or 0)


def _tables(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    first, then = totals(before), totals(after)
    old, new = folders(before), folders(after)
    whole = [f"| {name} | {first[name]:,} | {then[name]:,} |" for name in then]
    rows = [_row(folder, old.get(folder), new.get(folder)) for folder in sorted(old.keys() | new.keys())]
    titles = " | ".join(f"{name} before | after" for name in ("files", "lines"))
    return {
        "totals": "\n".join(["| | before | after |", "| --- | --- | --- |", *whole]),
        "folders": "\n".join([f"| folder | {titles} |", f"| ---{' | ---' * 4} |", *rows]),
    }


def _row(folder: str, *both: Figures | None) -> str:
    pairs = zip(*((f"{number:,}" for number in found) if found else [""] * 2 for found in both), strict=True)
    return f"| {folder} | {' | '.join(cell for pair in pairs for cell in pair)} |"


def renew() -> None:
    """Write the tables. Raises SystemExit where a docstring is a fragment or a function is named by a participle."""
    files = files_of()
    if found := bad_words(files):
        sys.exit(f"say these in a better way: {found}")
    text = RECORD.read_text()
    for name, table in _tables(files_of(BEFORE), files).items():
        head, _, rest = text.partition(f"<!-- {name} -->\n")
        text = f"{head}<!-- {name} -->\n{table}\n<!-- /{name} -->{rest.partition(f'<!-- /{name} -->')[2]}"
    RECORD.write_text(text)


if __name__ == "__main__":
    renew()
