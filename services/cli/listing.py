"""A table whose last column goes below its row where the terminal is too narrow: names stay whole and can be copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions
from rich.padding import Padding
from rich.text import Text

GAP = "  "
INDENT = 4


class Listing:
    """A cell for each name; what is last may be sentences, which wrap below their row. No cell is read as markup."""

    def __init__(self, *names: str) -> None:
        self._names = [Text(name, "dim") for name in names]
        self._rows: list[list[Text]] = []

    def add(self, *cells: str | Text) -> None:
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text | Padding]:
        rows = [self._names, *self._rows]
        widths = [max(row[column].cell_len for row in rows) for column in range(len(self._names))]
        inline = sum(widths) + len(GAP) * (len(widths) - 1) <= options.max_width
        yield _line(self._names if inline else self._names[:-1], widths)
        for row in self._rows:
            yield _line(row if inline else row[:-1], widths)
            if not inline and row[-1].plain:
                yield Padding(row[-1], (0, 0, 0, INDENT), expand=False)


def _line(cells: Sequence[Text], widths: Sequence[int]) -> Text:
    """Print a line. What is wider than the terminal goes on in its next line; nothing is cut off."""
    line = Text(overflow="fold")
    for cell, width in zip(cells, widths, strict=False):
        line.append_text(cell).append(" " * (width - cell.cell_len)).append(GAP)
    line.rstrip()
    return line
