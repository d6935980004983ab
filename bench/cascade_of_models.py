"""python -m bench.cascade_of_models --adapter FOLDER: what a right answer costs, before and after.

A cascade of two language models. *Big* is SmolLM2 with 12 example turns before each task, *small* is SmolLM2 with two
and an adapter that `bench.own` trained (`--families orders`). The small one answers in groups of 4: what most of the
group says is served, and their share routes. Both answer the same held-out orders, once. Then 200 fleets draw tasks
from these at random and raise the share by the product's rule. An audited pair is judged by the share of right fields
(`verifier:json`); the hidden verifier counts what is exactly right. A sampled token costs four times one of a prompt,
and one of the big model's `--big-price` times one of the small one's. Answers are kept in bench/out: a second run
samples none. Exits 1 if more than 5 % of the fleets raise the share wrongly, if less is right at any share than δ
allows, or if a right answer costs more in the end than before.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.cascade import ALPHA, PLAN, Fleet, Tasks, Twins, print_row
from bench.machine import machine
from bench.own.families import FAMILIES, OwnTask
from bench.own.world import TEMPERATURE, answer, scores_of
from ratchet.experiments.cascade import SHARES, Cut, cut_for
from schemas.messages.work import Sampling

OUT = Path(__file__).parent / "out" / "cascade-of-models"
FAMILY, EXAMPLES, GROUP, SEED = FAMILIES["orders"], 12, 4, 4
PRICE_OF_PROMPT, PRICE_OF_SAMPLED = 1.0, 4.0
"""Prices of a thousand tokens of the small model."""
FLEETS, STREAM = 200, 8_000

Row = dict[str, Any]
"""The share of the group that says what is served (`routed`), what that is worth (`score`, `right`), and its `cost`."""


def ask(name: str, tasks: Sequence[OwnTask], samples: int, adapter: Path | None = None) -> list[Row]:
    """Return what a model serves to each task, and keep it under the name."""
    path = OUT / f"{name}.json"
    if not path.exists():
        sampling = Sampling(n=samples, temperature=TEMPERATURE, max_tokens=FAMILY.max_tokens)
        groups, _ = answer("smollm2", tasks, sampling, SEED, adapter)
        served = [Counter(sample.text for sample in group.samples).most_common(1)[0] for group in groups]
        rows = [{"routed": votes / samples} for _, votes in served]
        scores = scores_of(FAMILY, tasks, [[says] for says, _ in served])
        for row, group, (score,) in zip(rows, groups, scores, strict=True):
            sampled = sum(len(sample.completion_ids or ()) for sample in group.samples)
            cost = (PRICE_OF_PROMPT * len(group.prompt_ids or ()) + PRICE_OF_SAMPLED * sampled) / 1000
            row |= {"score": score, "right": float(score >= 1.0), "cost": cost}
        OUT.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows, indent=1))
    found: list[Row] = json.loads(path.read_text())
    return found


def column(rows: Sequence[Row], name: str) -> np.ndarray:
    return np.array([row[name] for row in rows])


def share_taken(cut: Cut, routed: np.ndarray) -> np.ndarray:
    """Return the probability that the small model answers, of each task."""
    return np.where(routed > cut.score, 1.0, np.where(routed == cut.score, cut.share_at, 0.0))


def print_steps(small: Sequence[Row], big: Sequence[Row]) -> list[tuple[float, float]]:
    """Print what is right and what it costs at each share; return the share of right answers and the cost of one.

    At 0 the big model alone answers, as before there was a cascade. After that the small one answers each task, the big
    one those below the cut besides, and audited ones.
    """
    routed, of_steps = column(small, "routed"), []
    print(f"\n{'share':>6}{'right':>8}{'fields':>8}{'cost of a task':>16}{'of a right answer':>19}")
    for share in SHARES:
        taken = share_taken(cut_for(share, routed.tolist()), routed)
        right, score = (np.mean(taken * column(small, it) + (1 - taken) * column(big, it)) for it in ("right", "score"))
        audited = PLAN.audit if 0.0 < share < 1.0 else 0.0
        cost = np.mean((1 - taken + audited) * column(big, "cost"))
        cost += np.mean(column(small, "cost")) if share else 0.0
        of_steps.append((float(right), float(cost / right)))
        print(f"{share:6.0%}{right:8.3f}{score:8.3f}{cost:16.3f}{cost / right:19.3f}")
    return of_steps


def run_fleets(small: Sequence[Row], big: Sequence[Row]) -> list[Fleet]:
    """Return how the rule went in fleets that draw their tasks from these. A loss is one of `score`."""
    rng, routed = np.random.default_rng(1), column(small, "routed")
    of_small, of_big = column(small, "score"), column(big, "score")

    def loss(cut: Cut) -> float:
        return float(np.mean(share_taken(cut, routed) * (of_big - of_small)))

    drawn = [rng.integers(len(small), size=STREAM) for _ in range(FLEETS)]
    streams = [
        Tasks(routed[one], of_small[one], of_big[one], (of_small - of_big)[one], rng.random(STREAM)) for one in drawn
    ]
    return Twins(streams, loss).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", type=Path, required=True, help="of the small model")
    parser.add_argument("--tasks", type=int, default=96)
    parser.add_argument("--big-price", type=float, default=1.0, help="of a token of the big model")
    options = parser.parse_args()
    print(machine())
    big = ask("big", FAMILY.tasks(options.tasks, SEED, held_out=True, examples=EXAMPLES), 1)
    big = [row | {"cost": row["cost"] * options.big_price} for row in big]
    small = ask("small", FAMILY.tasks(options.tasks, SEED, held_out=True), GROUP, options.adapter)
    for name, rows in (("big", big), ("small", small)):
        right, cost = np.mean(column(rows, "right")), np.mean(column(rows, "cost"))
        print(
            f"{name}: right {right:.3f} of {len(rows)}, cost of a task {cost:.3f}, of a right answer {cost / right:.3f}"
        )
    of_steps = print_steps(small, big)
    fleets = run_fleets(small, big)
    print_row("by proof", fleets)
    wrong = sum(fleet.raised_wrongly for fleet in fleets) / FLEETS
    (right_before, cost_before), (_, cost_after) = of_steps[0], of_steps[-1]
    is_kept = all(right >= right_before - PLAN.margin for right, _ in of_steps)
    sys.exit(wrong > ALPHA or not is_kept or cost_after > cost_before)


if __name__ == "__main__":
    main()
