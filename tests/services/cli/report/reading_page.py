"""Reads the report's file as a program does: the data in it, its policy, and what a browser would run or load."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from typing import Any


class ReadPage(HTMLParser):
    """`data`: what is drawn; `texts`: its strings, wherever they stand in it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self._inside: dict[str, str] = {}
        self._place = ""
        self.feed(page)
        self.close()
        self.policy = next(value for name, value in self.attributes if name == "content" and "default-src" in value)
        self.data: dict[str, Any] = json.loads(self._inside["script application/json"])
        self.texts = list(_texts(self.data))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self._place = " ".join([tag, *(value or "" for name, value in attrs if name == "type")])

    def handle_endtag(self, tag: str) -> None:
        self._place = ""

    def handle_data(self, data: str) -> None:
        self._inside[self._place] = self._inside.get(self._place, "") + data

    def check_that_nothing_else_acts(self) -> None:
        """Its own script and style alone are allowed, each by its digest; nothing is loaded."""
        assert self.tags == [
            "html",
            "head",
            *["meta"] * 4,
            "title",
            "style",
            "body",
            "noscript",
            "main",
            *["script"] * 2,
        ]
        assert {"src", "href", "style", "action"}.isdisjoint(name for name, _ in self.attributes)
        allowed = re.findall(r"(script|style)-src '(sha256-[^']+)'", self.policy)
        written = [("script", self._inside["script"]), ("style", self._inside["style"])]
        assert allowed == [
            (kind, f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}") for kind, text in written
        ]
        assert "unsafe" not in self.policy
        assert "url(" not in self._inside["style"] and "@import" not in self._inside["style"]


def _texts(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _texts(item)
