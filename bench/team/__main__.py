"""python -m bench.team [--seeds 8]: two roles trained and promoted one at a time, beside simpler ways; the swap table.

As many rollouts for each way: *team*, a role a round, promoted by the product's live test on the team's outcome;
*shared*, one adapter for both roles; *alone*, each role trained without its partner (the writer by its draft, the
mender beside an untrained writer), used together. Figures are the hidden verifier's on held-out tasks. A seed is kept
when it is done. Everything goes to bench/out/team.json. Exits 1 where a bar is missed: false promotions of a role at
most 5 %, no promoted vector 0.01 below the one before it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from bench.learning.table import interval
from bench.machine import machine

OUT = Path(__file__).parents[1] / "out"
TASKS, GROUP, ROUNDS = 64, 8, 4
WORSE = 0.01


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")
    if options.model:
        from bench.team.orders import OrdersWorld, run
        from ratchet.models.known import model_folder

        print(machine())
        world = OrdersWorld(Path(model_folder(options.model)), options.seeds)
        for step in run(world, options.folder / f"orders-{options.seeds}"):
            print(json.dumps(step), flush=True)
        return
    from bench.team.promoting import WRONG_BAR, false_promotions
    from bench.team.world import make_base

    base = make_base(options.folder / "base")
    seeds = [_seed(base, seed, options.folder) for seed in range(1, options.seeds + 1)]
    found: dict[str, Any] = {"machine": machine(), "false_promotions": false_promotions(options.fleets), "seeds": seeds}
    options.json.write_text(json.dumps(found, indent=1) + "\n")
    print_tables(found)
    worst = min((step["after"] - step["before"] for one in seeds for step in one["promoted"]), default=0.0)
    print(f"worst promoted vector against the one before it: {worst:+.3f}")
    sys.exit(0 if max(found["false_promotions"].values()) <= WRONG_BAR and worst >= -WORSE else 1)


def _seed(base: Path, seed: int, folder: Path) -> dict[str, Any]:
    """One seed's figures, from the folder if they are there."""
    path = folder / f"seed-{seed}.json"
    if path.exists():
        return dict(json.loads(path.read_text()))
    from bench.team.world import World

    began = time.process_time()
    with tempfile.TemporaryDirectory() as scratch:
        found = compare(World(base, seed), Path(scratch))
    found |= {"seed": seed, "cpu_seconds": round(time.process_time() - began, 1)}
    path.write_text(json.dumps(found) + "\n")
    print(json.dumps(found), flush=True)
    return found


def compare(world: Any, scratch: Path) -> dict[str, Any]:
    """All ways of one seed."""
    from bench.team.promoting import is_promoted
    from bench.team.world import ROLES, Vector

    def worth(vector: Vector) -> float:
        return statistics.fmean(world.held_out(vector))

    def rollouts(vector: Vector, number: int) -> list[Any]:
        return list(world.rollouts(vector, world.tasks(TASKS, number), GROUP, number))

    old: Vector = dict.fromkeys(ROLES)
    team, before, promoted = dict(old), worth(old), []
    start = before
    for number in range(ROUNDS):
        role = ROLES[number % 2]
        adapter = world.train(team[role], rollouts(team, number), (role,), scratch / f"team-{number}", "mender")
        tried = team | {role: adapter}
        if is_promoted(world, team, tried, number)[0]:
            after = worth(tried)
            promoted.append({"role": role, "round": number + 1, "before": before, "after": after})
            team, before = tried, after
    shared: Path | None = None
    for number in range(ROUNDS):
        groups = rollouts(dict.fromkeys(ROLES, shared), number)
        shared = world.train(shared, groups, ROLES, scratch / f"shared-{number}", "mender")
    alone: Vector = dict(old)
    for number in range(ROUNDS):
        role = ROLES[number % 2]
        groups = rollouts(old | {role: alone[role]}, number)
        alone[role] = world.train(alone[role], groups, (role,), scratch / f"alone-{number}", role)
    swap = {
        "new writer, new mender": before,
        "new writer, old mender": worth(team | {"mender": None}),
        "old writer, new mender": worth(team | {"writer": None}),
        "old writer, old mender": start,
    }
    ways = {"base": start, "team": before, "shared": worth(dict.fromkeys(ROLES, shared)), "alone": worth(alone)}
    return {"ways": ways, "swap": swap, "promoted": promoted}


def print_tables(found: dict[str, Any]) -> None:
    print(found["machine"])
    for name in ("ways", "swap"):
        print(f"\n{name}, means over {len(found['seeds'])} seeds; differences paired, 95 % intervals")
        rows = [one[name] for one in found["seeds"]]
        first = "team" if name == "ways" else "new writer, new mender"
        for way in rows[0]:
            mean, half = interval([row[way] for row in rows])
            apart, wide = interval([row[first] - row[way] for row in rows])
            told = (
                "" if way == first else f"   {first} minus it {apart:+.3f} [{apart - wide:+.3f}, {apart + wide:+.3f}]"
            )
            print(f"{way:26}{mean:.3f} ± {half:.3f}{told}")
    for name, share in found["false_promotions"].items():
        print(f"false promotions, {name}: {share:.3f}")
    steps = [step["after"] - step["before"] for one in found["seeds"] for step in one["promoted"]]
    print(f"{len(steps)} vectors promoted, {sum(step > 0 for step in steps)} of them up")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="smollm2: the team of a real model instead (bench/team/orders.py), one seed")
    parser.add_argument("--seeds", type=int, default=8, help="how many; of a real model, which one")
    parser.add_argument("--fleets", type=int, default=2000, help="simulated, for false promotions")
    parser.add_argument("--folder", type=Path, default=OUT / "team", help="where the model and the seeds are kept")
    parser.add_argument("--json", type=Path, default=OUT / "team.json", help="where everything is written")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
