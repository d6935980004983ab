"""docs/glossary.md has words that the documents use, in order, and is found from their map."""

from __future__ import annotations

import re

from tests.docs.reading import ROOT

DOCS = ROOT / "docs"
GLOSSARY = DOCS / "glossary.md"
HEADINGS = re.findall(r"^## (.+)$", GLOSSARY.read_text(), re.MULTILINE)


def test_the_words_are_in_order_and_there_are_some() -> None:
    assert len(HEADINGS) > 40
    assert sorted(HEADINGS, key=str.lower) == HEADINGS


def test_each_word_is_used_in_the_documents() -> None:
    pages = [page.read_text() for page in DOCS.rglob("*.md") if page != GLOSSARY]
    text = " ".join("\n".join(pages).lower().split())
    words = [word for heading in HEADINGS for word in heading.lower().split(", ")]

    assert [word for word in words if not re.search(rf"\b{re.escape(word)}s?\b", text)] == []


def test_it_is_found_from_the_map_and_from_the_pages_that_need_it() -> None:
    needs = ("README.md", "architecture.md", "conversations.md", "experiments.md", "training.md")

    assert [name for name in needs if "](glossary.md" not in (DOCS / name).read_text()] == []
