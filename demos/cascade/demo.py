"""The demo of `ratchet demo --cascade`: a bigger model answers all letters to sort, until the small one is proved to.

The bigger model is the judge of the sort demo, as an agent of its own. The small one answers beside it, unseen, learns
from its own answers and from the bigger one's, and takes over a share of the tasks that rises by proof. Whether what
users get is right a verifier says that nobody in the fleet has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import RenderableType

from demos.books import Measured
from demos.cascade.picture import Window, picture
from demos.demo import Sizes
from demos.sort.demo import SortDemo
from demos.story import DemoTurn, Story, gain_faults
from demos.story_view import gains_table, heading
from demos.toy.sort_task import SortTask
from ratchet.adapters.registry import RegistryStore
from ratchet.experiments.cascade import SHARES
from ratchet.experiments.gain import Gain, gain
from ratchet.files.atomic_file import replace_file
from ratchet.logs.best_answer import result_of, usage_of
from ratchet.logs.cascaded import big_task_of
from ratchet.logs.groups import group_by_task
from ratchet.logs.names import INTERACTIONS
from ratchet.logs.reader import read
from ratchet.service.prices import MICRO, Prices
from schemas.messages.base import DecodeError
from schemas.records.interaction import Interaction
from services.cli.fleet.folder import FleetAccess
from services.cli.fleet.options import BIG_AGENT, JUDGE_MODEL, SMALL_MAX_TOKENS, FleetOptions
from services.cli.fleet.own_fleet import FleetPlace
from services.cli.terminal import table

SIZES = Sizes(tasks=64, samples=8, turns=1, groups=96, no_turn_after=180.0, timeout=180.0)
AGENT = "small"
PRICES_FILE = "prices.toml"
PRICES_TOML = f"""currency = "USD"
[agents]
{AGENT} = {{ prompt = 0.1, sampled = 0.4, samples = 8, max_tokens = {SMALL_MAX_TOKENS} }}
{BIG_AGENT} = {{ prompt = 2.5, sampled = 10, samples = 1, max_tokens = {SMALL_MAX_TOKENS} }}
"""
"""The prices of a million tokens: those of a small and a big model of 2026."""
PRICES = Prices.parse(PRICES_TOML).agents
MARGIN = 0.02
ENOUGH = 0.8
"""The share of the small model at which users stop asking."""
MOST = 3_000
WINDOW = 150
"""Tasks of one point of the picture, and those that users ask once the share is enough."""
AUDIT = 0.5
"""The share of the tasks that both models may answer: five times the usual one. A proof takes fewer tasks, and costs
more meanwhile."""
PICTURE = "cascade.svg"


@dataclass(frozen=True, kw_only=True)
class CascadeDemo(SortDemo):
    folder, prefix, source = "demo-cascade", "cascade-demo", "ratchet demo --cascade"
    bad_adapter = False
    next_command = "ratchet cascade show"

    def options(self, options: FleetOptions, place: FleetPlace) -> FleetOptions:
        return replace(options, big=JUDGE_MODEL)

    def settings(self, place: FleetPlace) -> dict[str, str]:
        prices = str(place.root / PRICES_FILE)
        return {**super().settings(place), "RATCHET_PRICES": prices, "RATCHET_CASCADE_AUDIT": f"{AUDIT}"}

    def files(self) -> Mapping[str, str]:
        return {PRICES_FILE: PRICES_TOML}

    def enough_asked(self, access: FleetAccess, store: RegistryStore) -> tuple[Callable[[], bool], int, int]:
        def is_enough() -> bool:
            standing = store.read().agent(AGENT).cascade
            return standing is not None and SHARES[standing.state.step] >= ENOUGH

        return is_enough, MOST, WINDOW

    def figures(  # type: ignore[override]  # the same tasks, other figures
        self, measured: Mapping[str, Measured[SortTask]], turns: Sequence[DemoTurn], adapters: Path
    ) -> CascadeFigures:
        right = (self.right_answers(measured[stage]) for stage in ("before", "after"))
        return CascadeFigures(gain=gain(*right), windows=tuple(windows(read_served(adapters.parents[1] / "logs"))))

    def write_pages(self, story: Story, place: FleetPlace) -> Path:
        figures = story.figures
        assert isinstance(figures, CascadeFigures)
        replace_file(place.root / PICTURE, picture(figures.windows, MARGIN).encode())
        return place.report

    def last_words(self, place: FleetPlace, *, stays: bool) -> Iterator[str]:
        yield f"\nShare and quality over time: {place.root / PICTURE}"


@dataclass(frozen=True, slots=True)
class Served:
    """One user's task: who answered it, whether that is right, and what both models took."""

    order: int
    by_small: bool
    right: bool
    cost: float
    big_cost: float | None
    """The big model's part; None where it was not asked."""


def read_served(logs_dir: Path) -> list[Served]:
    """Return the users' tasks that were routed, in that order. Raises JournalError."""
    small: list[Interaction] = []
    big_costs: dict[str, float] = {}
    for line in read(logs_dir, INTERACTIONS, on_bad=lambda bad: None):
        try:
            one = Interaction.decode(line.data)
        except DecodeError:
            continue
        if one.agent_id == BIG_AGENT:
            big_costs[one.task_id] = cost_of([one])
        elif one.agent_id == AGENT:
            small.append(one)
    groups = [group for group in group_by_task(iter(small)) if group[0].cascade is not None]
    found = [served for group in groups if (served := _one_served(group, big_costs)) is not None]
    return sorted(found, key=lambda one: one.order)


def _one_served(group: Sequence[Interaction], big_costs: Mapping[str, float]) -> Served | None:
    routing = group[0].cascade
    if routing is None or not isinstance(group[0].input, str):
        return None
    answer = "".join(sorted(group[0].input.removeprefix("sort: ")))
    big_cost = big_costs.get(big_task_of(group[0].task_id))
    return Served(
        order=routing.order,
        by_small=routing.served == "small",
        right=(result_of(group).response or "").strip() == answer,
        cost=cost_of(group) + (big_cost or 0.0),
        big_cost=big_cost,
    )


def cost_of(lines: Sequence[Interaction]) -> float:
    return float(PRICES[lines[0].agent_id].of(usage_of(lines)) / MICRO)


def windows(served: Sequence[Served], size: int = WINDOW) -> Iterator[Window]:
    """Yield the tasks in parts of `size`, counted from the end; what is left belongs to the first one."""
    parts = max(1, len(served) // size)
    rest = len(served) - parts * size
    for number in range(parts if served else 0):
        part = served[rest + number * size if number else 0 : rest + (number + 1) * size]
        yield Window(
            len(part),
            fmean(one.by_small for one in part),
            fmean(one.right for one in part),
            fmean(o.cost for o in part),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeFigures:
    """`gain`: of a single answer of the small model to held-out tasks. `windows`: of what users got, in order."""

    gain: Gain
    windows: tuple[Window, ...]

    def faults(self) -> Iterator[str]:
        yield from gain_faults(self.gain, 0.0, "answers are right")
        if len(self.windows) < 2 or self.windows[-1].share <= 0.2:
            yield "the small model did not come to answer more than a fifth of the tasks"
            return
        first, last = self.windows[0], self.windows[-1]
        worst = min(self.windows[1:], key=lambda one: one.right)
        spread = 3 * math.sqrt(sum(_variance(one) / one.tasks for one in (first, worst)))
        if worst.right + spread < first.right - MARGIN:
            yield f"{worst.right:.3f} of {worst.tasks} answers in a row were right, and {first.right:.3f} at first"
        if last.cost >= first.cost:
            yield f"a task costs {last.cost:.2g} in the end, and {first.cost:.2g} at first"

    def as_dict(self) -> Mapping[str, Any]:
        return {"held_out": self.gain.as_dict(), "windows": [asdict(one) for one in self.windows]}

    def tables(self, primary: str) -> Sequence[RenderableType]:
        shown = table("users' tasks", "by the small model", "right", "cost of 1,000 tasks")
        begin = 0
        for one in self.windows:
            cells = (f"{one.share:.0%}", f"{one.right:.3f}", f"{1000 * one.cost:.4f}")
            shown.add_row(f"{begin + 1:,} to {begin + one.tasks:,}", *cells)
            begin += one.tasks
        rights = [one.right for one in self.windows] or [0.0]
        note = (
            f"At first {rights[0]:.3f} of what users got was right, and no less than {min(rights):.3f} in any part; a "
            f"loss of {MARGIN} is not accepted. "
            f"Means over {self.gain.before.tasks} held-out tasks, of single answers, by a verifier that nobody in the "
            "fleet has. Users get the small model's best of 8, or the big model's answer; right by the same verifier. "
            "Prices of a million prompt and sampled tokens: "
            + " and ".join(f"{one.prompt}/{one.sampled}" for one in PRICES.values())
            + "."
        )
        title = heading("What users got, from the first task on")
        return (
            title,
            shown,
            heading("Held-out tasks, before and after"),
            gains_table(primary, {"single": self.gain}, note),
        )


def _variance(window: Window) -> float:
    """Return the variance, at least that of one wrong answer."""
    right = min(window.right, 1.0 - 1.0 / window.tasks)
    return right * (1.0 - right)
