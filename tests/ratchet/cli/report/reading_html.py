"""A reader of HTML for tests: strict about balance, and it lists all that a browser would act on."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta"}


class ReadPage(HTMLParser):
    """Raises AssertionError for an element that is closed in the wrong order, or never."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def all(self, name: str) -> list[str]:
        """The values of an attribute, wherever it stands."""
        return [attributes[name] for _, attributes in self.elements if name in attributes]
