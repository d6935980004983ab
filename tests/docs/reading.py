"""The documents of the repository, and what can be checked of their text without understanding it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")))
TOP_FOLDERS = ("bench", "docs", "examples", "infra", "ratchet", "schemas", "services", "tests")

_FENCED = re.compile(r"^```.*?^```|(?:^(?: {4}|\t)[^\n]*\n)+", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def code_in(text: str) -> list[str]:
    """What stands as code: blocks (fenced or indented), and spans outside them."""
    return [*_FENCED.findall(text), *_SPAN.findall(_FENCED.sub("", text))]


def spans_in(text: str) -> list[str]:
    """Spans of code outside blocks."""
    return _SPAN.findall(_FENCED.sub("", text))


def links_in(text: str) -> list[str]:
    """Targets of links and pictures that are not addresses on the web."""
    return [link for link in _LINK.findall(_FENCED.sub("", text)) if not re.match(r"[a-z]+:", link)]


def anchors_of(document: Path) -> set[str]:
    """The fragments that GitHub gives the headings of a document."""
    headings = re.findall(r"^#+ +(.+?)\s*$", _FENCED.sub("", document.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def paths_in(text: str) -> Iterator[str]:
    """Paths from the root of the repository that spans of code name; patterns with a `*` among them."""
    for span in spans_in(text):
        if re.fullmatch(rf"(?:{'|'.join(TOP_FOLDERS)})/[\w./*-]*", span):
            yield span


def file_names_in(text: str) -> Iterator[str]:
    """Names of Python files that stand alone in spans of code."""
    for span in spans_in(text):
        if re.fullmatch(r"\w+\.py", span):
            yield span
