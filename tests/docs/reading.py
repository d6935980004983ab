"""The documents of the repository, and what can be checked of their text without understanding it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCUMENTS = (
    *sorted(ROOT.glob("*.md")),
    *(page for top in ("docs", "examples") for page in sorted((ROOT / top).rglob("*.md"))),
)
TOP_FOLDERS = ("bench", "demos", "docs", "examples", "infra", "ratchet", "schemas", "services", "tests", "workbench")

_FENCED = re.compile(r"^```.*?^```|(?:^(?: {4}|\t)[^\n]*\n)+", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def code_in(text: str) -> list[str]:
    """Return the code of a text: blocks (fenced or indented), and spans outside them."""
    return [*_FENCED.findall(text), *_SPAN.findall(_FENCED.sub("", text))]


def spans_in(text: str) -> list[str]:
    """Spans of code outside blocks."""
    return _SPAN.findall(_FENCED.sub("", text))


def commands_typed(text: str) -> list[list[str]]:
    """The words behind each `ratchet` that is typed in code, up to where the shell or another program goes on."""
    joined = "\n".join(code_in(text)).replace("\\\n", " ")
    lines = re.findall(r"(?:^|bin/|(?<!-n)[\s(])ratchet ((?:[a-z]+-)*[a-z]+\b(?![./:=]).*)", joined, re.MULTILINE)
    return [re.split(r"\s(?:--|\||;|&&|#|>|<)(?:\s|$)|`", line)[0].split() for line in lines]


def links_in(text: str) -> list[str]:
    """Targets of links and pictures that are not addresses on the web."""
    return [link for link in _LINK.findall(_FENCED.sub("", text)) if not re.match(r"[a-z]+:", link)]


def items_in(text: str) -> list[str]:
    """Return the items of lists, without the targets of links and without links in brackets."""
    items = re.findall(r"^ *(?:[-*]|\d+\.) +(.+)$", _FENCED.sub("", text), re.MULTILINE)
    return [re.sub(r"\]\([^)]*\)", "]", re.sub(r"\(\[[^\]]*\]\([^)]*\)\)", "", item)) for item in items]


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
