"""Small mistakes in the program of infra/, made one at a time in its source: a literal changed, an argument left out.

Leaves out what renders nothing: docstrings, descriptions of settings, the sentences of errors, and files that the
program does not import.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INFRA = Path(__file__).parents[2] / "infra"
NOT_RENDERED = ("check_ports.py", "image_requirements.py", "__init__.py")


@dataclass(frozen=True, slots=True)
class Mutant:
    """`number` finds it again in its file, as long as the file does not change. `word` is a text that is `other`."""

    module: str
    number: int
    line: int
    what: str
    word: str | None = None
    other: str | None = None

    def __str__(self) -> str:
        return f"infra/{self.module}.py:{self.line} {self.what}"


def mutants() -> list[Mutant]:
    """All of them, in the order of files and lines."""
    files = sorted(path for path in INFRA.glob("*.py") if path.name not in NOT_RENDERED)
    return [
        Mutant(path.stem, number, line, what, *words)
        for path in files
        for number, (line, what, _, *words) in enumerate(_changes(ast.parse(path.read_text("utf-8"))))
    ]


def source_of(mutant: Mutant) -> ast.Module:
    """The module's source with this mistake in it."""
    tree = ast.parse((INFRA / f"{mutant.module}.py").read_text("utf-8"))
    change = list(_changes(tree))[mutant.number][2]
    change()
    return ast.fix_missing_locations(tree)


Change = tuple[int, str, Callable[[], None]] | tuple[int, str, Callable[[], None], str, str]


def _changes(tree: ast.Module) -> Iterator[Change]:
    for node in _rendered_nodes(tree):
        match node:
            case ast.Constant(value=value) if isinstance(value, bool | int | float | str):
                other = _mutate(value)
                change = node.lineno, f"{value!r} is {other!r}", _setter(node, other)
                yield (*change, value, str(other)) if isinstance(value, str) else change
            case ast.Call(keywords=keywords):
                for keyword in keywords:
                    if keyword.arg and keyword.arg != "description":
                        what = f"{ast.unparse(node.func)} without {keyword.arg}"
                        yield keyword.value.lineno, what, _remover(keywords, keyword)
            case ast.Tuple(elts=elements) | ast.List(elts=elements) if isinstance(node.ctx, ast.Load):
                for element in elements:
                    yield (
                        element.lineno,
                        f"without the element {ast.unparse(element)[:60]}",
                        _remover(elements, element),
                    )
            case ast.Dict(keys=keys, values=values):
                for key, entry in zip(keys, values, strict=True):
                    name = ast.unparse(key) if key else "**"
                    yield entry.lineno, f"without the entry {name[:60]}", _entry_remover(keys, values, entry)


def _rendered_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield nodes depth first, without texts for people."""
    yield node
    for name, field in ast.iter_fields(node):
        for child in field if isinstance(field, list) else [field]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Import | ast.ImportFrom):
                continue
            is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            is_description = isinstance(child, ast.keyword) and child.arg == "description"
            if not (is_text or is_description or name in ("annotation", "returns")):
                yield from _rendered_nodes(child)


def _mutate(value: bool | float | str) -> bool | float | str:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value[:-1] if len(value) > 1 else f"{value}x"
    return value * 10 if value else 1


def _setter(node: ast.Constant, value: bool | float | str) -> Callable[[], None]:
    return lambda: setattr(node, "value", value)


def _remover(nodes: list[Any], node: ast.AST) -> Callable[[], None]:
    return lambda: nodes.remove(node)


def _entry_remover(keys: list[ast.expr | None], values: list[ast.expr], value: ast.expr) -> Callable[[], None]:
    def remove() -> None:
        index = values.index(value)
        del keys[index], values[index]

    return remove
