"""What the documents point to is there: links, headings, paths, modules, targets, commands."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

from services.cli.app import COMMANDS, app, command
from tests.docs.reading import (
    DOCUMENTS,
    ROOT,
    TOP_FOLDERS,
    anchors_of,
    code_in,
    commands_typed,
    file_names_in,
    items_in,
    links_in,
    paths_in,
)

README_LIMIT = 14_000
CONTRIBUTING_LIMIT = 6_000
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
"""The documents of users; records of decisions argue at more length."""
MADE_BY_WHOEVER_RUNS_IT = {
    "bench/out/",
    "infra/prometheus/alertmanagers/mine.yml",
    "infra/secrets/ratchet_scorer_judge_api_key",
}

_made = cache(command)


@cache
def command_names() -> frozenset[str]:
    return frozenset(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@cache
def is_a_file_name(name: str) -> bool:
    return name in all_names() or any(any((ROOT / top).rglob(name)) for top in TOP_FOLDERS)


@cache
def all_names() -> frozenset[str]:
    return frozenset(path.name for top in TOP_FOLDERS for path in (ROOT / top).rglob("*"))


each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))


def test_the_readme_and_contributing_are_short() -> None:
    assert len((ROOT / "README.md").read_bytes()) <= README_LIMIT
    assert len((ROOT / "CONTRIBUTING.md").read_bytes()) <= CONTRIBUTING_LIMIT


def test_the_documents_are_found() -> None:
    names = {document.name for document in DOCUMENTS}

    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "architecture.md"} <= names
    assert any(links_in(document.read_text()) for document in DOCUMENTS)
    assert any(list(paths_in(document.read_text())) for document in DOCUMENTS)


def test_the_map_names_every_page() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    named = {link.partition("#")[0] for link in links_in((ROOT / "docs" / "README.md").read_text())}

    assert pages - named == {"README.md"}


def test_the_site_has_every_page() -> None:
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    listed = set(re.findall(r"^ +- (?:.+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))

    assert pages ^ listed == {"overview.md", "contributing.md", "changelog.md"}


@each_document
def test_every_link_leads_somewhere(document: Path) -> None:
    broken = []
    for link in links_in(document.read_text()):
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)

    assert broken == []


@each_document
def test_every_path_and_file_named_is_there(document: Path) -> None:
    text = document.read_text()
    paths = set(paths_in(text)) - MADE_BY_WHOEVER_RUNS_IT
    missing = [path for path in sorted(paths) if not any(ROOT.glob(path.rstrip("/")))]
    missing += [name for name in file_names_in(text) if not is_a_file_name(name)]

    assert missing == []


@each_document
def test_every_module_that_is_to_be_run_can_be(document: Path) -> None:
    named = {module for code in code_in(document.read_text()) for module in re.findall(r" -m ([a-z_][\w.]*\w)", code)}

    assert sorted(module for module in named if not _runs(module)) == []


@each_document
def test_extras_are_installed_from_a_clone(document: Path) -> None:
    """Ratchet is on no package index."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"pip install [^`\n]*?'(.*?)\[([\w,]+)\]'", document.read_text())

    assert [(what, listed) for what, listed in named if what != "." or not set(listed.split(",")) <= set(extras)] == []


@each_document
def test_every_make_target_is_one(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for code in code_in(document.read_text()) for name in re.findall(r"\bmake ([a-z][a-z-]*)\b", code)}

    assert sorted(named - targets) == []


@each_document
def test_every_command_of_ratchet_is_one(document: Path) -> None:
    typed = re.compile(r"(?:^|bin/|(?<!-n)[\s(])ratchet ((?:[a-z]+-)*[a-z]+)\b(?![./:=])", re.MULTILINE)
    named = {name for code in code_in(document.read_text()) for name in typed.findall(code)}

    assert sorted(named - command_names()) == []


@each_document
def test_every_option_that_is_typed_is_one(document: Path) -> None:
    text = document.read_text()
    unknown = [f"ratchet {' '.join(words)}" for words in commands_typed(text) if not _is_typed_right(words)]
    unknown += [
        f"{module} {option}"
        for module, options in re.findall(r" -m ((?:bench|infra|services|tests|ratchet)\.[\w.]*\w)([^`|#\n]*)", text)
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", options)
        if _runs(module) and f'"{option}"' not in _source(module)
    ]

    assert unknown == []


def test_an_option_that_does_not_exist_is_found() -> None:
    typed = commands_typed("`ratchet train --no-such`\n\n    ratchet log prune --dry-run --never | cat\n")

    assert [_is_typed_right(line) for line in typed] == [False, False]
    assert all(
        map(_is_typed_right, commands_typed("`ratchet record --samples 8 -- python my_agent.py --any` `ratchet`"))
    )


@pytest.mark.parametrize("document", PAGES, ids=lambda path: path.name)
def test_items_of_lists_have_at_most_thirty_words(document: Path) -> None:
    long = [item for item in items_in(document.read_text()) if len(item.split()) > 30]

    assert long == []


def test_the_readme_lists_the_folders_there_are() -> None:
    block = (ROOT / "README.md").read_text().split("## The folders\n```\n")[1].split("```")[0]
    listed: set[str] = set()
    top = ""
    for line in block.splitlines():
        inside, name = bool(re.match(" ", line)), line.split()[0]
        top = top if inside else name
        listed |= {top + name} if inside else set(line.split("  ")[0].split())

    there = {f"{top}/" for top in TOP_FOLDERS} | {"logs/", "adapters/"}
    for parent in ("schemas", "services", "ratchet", "workbench"):
        there |= {f"{parent}/{path.name}/" for path in (ROOT / parent).iterdir() if _is_of_the_project(path)}

    assert listed == there


def _is_typed_right(words: list[str]) -> bool:
    """Whether the options behind `ratchet` are those of its command, or of that command's own."""
    found = _made(words[0]) if words[0] in COMMANDS else None
    known = {"--help", "--debug"}
    for word in words:
        found = getattr(found, "commands", {}).get(word, found)
        known |= {option for one in getattr(found, "params", ()) for option in (*one.opts, *one.secondary_opts)}
    return {word.split("=")[0].rstrip(",.:;)") for word in words if word.startswith("--")} <= known


def _source(module: str) -> str:
    spec = find_spec(module)
    assert spec is not None and spec.origin is not None
    place = Path(spec.origin)
    return "".join(
        file.read_text() for file in (place.parent.rglob("*.py") if place.name == "__init__.py" else [place])
    )


def _is_of_the_project(path: Path) -> bool:
    return path.is_dir() and path.name != "__pycache__"


def _runs(module: str) -> bool:
    """As `python -m` needs it: a file, or a package with a front door."""
    try:
        spec = find_spec(module)
        return spec is not None and (not spec.submodule_search_locations or find_spec(f"{module}.__main__") is not None)
    except ModuleNotFoundError:
        return False
