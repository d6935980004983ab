"""Tables of the results of driven programs: a row for each, over all its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.agents.driving import Recorded

HEAD = ("driven", "on", "runs", "calls", "with exact ids", "tokens sampled", "segments of a run", "breaks", "other")


@dataclass
class Row:
    """`calls` are those that the engine answered, `exact` those of them that are recorded token for token."""

    runs: int = 0
    calls: int = 0
    exact: int = 0
    sampled_tokens: int = 0
    segments: Counter[int] = field(default_factory=Counter)
    breaks: Counter[str] = field(default_factory=Counter)
    other: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)

    def add(self, run: Recorded) -> None:
        self.runs += 1
        self.calls += run.calls
        self.exact += run.exact
        self.sampled_tokens += run.usage.sampled_tokens
        self.segments[run.segments] += 1
        self.breaks.update(run.breaks)
        self.other.update({"normalised": run.usage.normalised, "replayed": run.usage.replayed})
        self.ended[run.sample.status or "none"] += 1

    def cells(self, name: str) -> tuple[str, ...]:
        """Return the cells in the order of HEAD."""
        seen = sorted({min(self.segments), max(self.segments)})
        return (
            name,
            f"{datetime.now(UTC):%Y-%m-%d}",
            *map(str, (self.runs, self.calls, self.exact, self.sampled_tokens)),
            " to ".join(map(str, seen)),
            ", ".join(f"{count} `{kind}`" for kind, count in sorted(self.breaks.items())) or "none",
            ", ".join(f"{count} {what}" for what, count in self.other.items() if count),
        )


def written(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))
