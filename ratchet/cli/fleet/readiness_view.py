"""How the start of a fleet is shown: a live table on a terminal, one line per change elsewhere."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

from ratchet.cli.fleet.readiness_wait import Standing


class ReadinessView:
    """Call `show` at every look; nothing is printed twice where the output is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._spinners: dict[str, Spinner] = {}
        self._shown: dict[str, str] = {}
        self._since = time.monotonic()

    @contextmanager
    def open(self) -> Iterator[ReadinessView]:
        if not self._console.is_terminal:
            yield self
            return
        with Live(console=self._console, refresh_per_second=8) as self._live:
            yield self

    def show(self, standing: Standing) -> None:
        if self._live:
            self._live.update(self._table(standing))
            return
        for name, stand in standing.items():
            if self._shown.get(name) != _without_numbers(stand):
                self._console.print(f"{name}: {stand}", markup=False)
        self._shown = {name: _without_numbers(stand) for name, stand in standing.items()}

    def _table(self, standing: Standing) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, stand in standing.items():
            mark = "[green]✔[/green]" if stand == "ready" else self._spinners.setdefault(name, Spinner("dots"))
            table.add_row(mark, name, "" if stand == "ready" else stand)
        table.add_row("", f"[dim]{time.monotonic() - self._since:.0f} s[/dim]", "")
        return table


def _without_numbers(stand: str) -> str:
    """`since 3 s` and `since 4 s` are the same reason."""
    return re.sub(r"\d+", "", stand)
