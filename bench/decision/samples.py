"""python -m bench.decision.samples [--fleets 12]: samples saved, and returns to the whole group, by the product's code.

A fleet with groups of 8 that trains, so that 4 is the fewest. Answers of its primary are right (1) or wrong (0). Each
task is one draw and one `closed` of services/orchestrator/tasks/adaptive_samples.py. Exits 1 if a bar is missed: where
4 of 8 lose at most half of the margin, 40 % of the answers are saved; no fleet whose answers stay as good returns to
whole groups.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean

from schemas.messages.base import Metadata
from schemas.messages.work import Arm, Sampling, Work
from schemas.records.interaction import Interaction, Latencies
from services.orchestrator.promotion.arms import Arms
from services.orchestrator.tasks.adaptive_samples import AdaptiveSamples, SamplesPolicy

USUAL, LEAST = 8, 4
NOW = datetime(2031, 5, 1, tzinfo=UTC)
NO_TIME = Latencies(queue_s=0, generate_s=0, score_queue_s=0, score_s=0, total_s=0)


@dataclass(frozen=True)
class World:
    """The chance that an answer is right: at first, and from the task `worse_from` on."""

    right: float
    worse_from: int | None = None
    worse: float = 0.0
    tasks: int = 10_000

    @property
    def name(self) -> str:
        change = f", {self.worse} from task {self.worse_from:,} on" if self.worse_from else ""
        return f"right {self.right}{change}"

    def loss(self, count: int) -> float:
        """Return what the best of `count` loses against the best of the whole group, at first."""
        return (1 - self.right) ** count - float((1 - self.right) ** USUAL)


WORLDS = (World(0.95), World(0.8), World(0.7), World(0.65), World(0.62), World(0.5))
CHANGES = (World(0.8, 4000, 0.5), World(0.8, 4000, 0.2))


@dataclass(frozen=True)
class Saved:
    """Savings over one fleet's tasks."""

    share: float
    returns: int
    fewest: int
    first_return: int | None
    """The task after which the whole group was first sampled again."""


def run(world: World, seed: int) -> Saved:
    chance = random.Random(seed)
    samples = AdaptiveSamples(Arms("small"), SamplesPolicy(USUAL, least=1, trains=True), random.Random(seed + 1))
    task = tasks()
    saved, returns, fewest, first = 0, 0, USUAL, None
    for number in range(world.tasks):
        before, count = samples.count(), samples.draw()
        right = world.right if world.worse_from is None or number < world.worse_from else world.worse
        samples.observe(*task([chance.random() < right for _ in range(count)]))
        saved += USUAL - count
        fewest = min(fewest, samples.count())
        if samples.count() > before:
            returns, first = returns + 1, first or number
    return Saved(saved / USUAL / world.tasks, returns, fewest, first)


def tasks() -> Callable[[list[bool]], tuple[Work, list[Interaction]]]:
    """A task's Work and lines by which of its answers are right; made once, since nothing else of them counts."""
    works = {
        count: Work(
            task_id="t",
            input="x",
            agent_id="small",
            arm=Arm(sequence=0),
            sampling=Sampling(n=count, lowered_from=USUAL if count < USUAL else None),
            admitted_at=NOW,
            deadline=NOW,
        )
        for count in range(1, USUAL + 1)
    }
    lines = {
        right: Interaction(
            task_id="t",
            input="x",
            response="abc",
            score=float(right),
            agent_id="small",
            adapter_version="v1.0.0",
            timestamp=NOW,
            metadata=Metadata(),
            sample=0,
            group_size=USUAL,
            arm=Arm(sequence=0),
            sampling=Sampling(n=USUAL),
            latencies=NO_TIME,
        )
        for right in (False, True)
    }
    return lambda rights: (works[len(rights)], [lines[right] for right in rights])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=12)
    fleets = parser.parse_args().fleets
    print(f"{fleets} fleets, 10,000 tasks each, margin {SamplesPolicy(USUAL).margin}; 4 to 8 answers a task\n")
    print(f"{'':42}{'loss of 4':>10}{'saved':>8}{'returns':>9}{'fewest':>8}{'of 4':>6}{'back after (median)':>21}")
    met = True
    for world in (*WORLDS, *CHANGES):
        found = [run(world, seed) for seed in range(fleets)]
        saved, returns = fmean(one.share for one in found), sum(one.returns for one in found)
        back = sorted(one.first_return - world.worse_from for one in found if one.first_return and world.worse_from)
        fours = sum(one.fewest == LEAST for one in found)
        print(
            f"{world.name:42}{world.loss(LEAST):>10.3f}{saved:>8.1%}{returns:>9}"
            f"{min(one.fewest for one in found):>8}{fours:>6}{back[len(back) // 2] if back else '–':>21}"
        )
        enough = world.loss(LEAST) <= SamplesPolicy(USUAL).margin / 2
        met &= world.worse_from is not None or (returns == 0 and (saved >= 0.4 or not enough))
    sys.exit(not met)


if __name__ == "__main__":
    main()
