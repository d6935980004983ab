"""python -m bench.decision [--runs 2000] [--seed 1] [--only PART …]: errors and speed of the promotion decision.

Simulated; every method looks after every unit. Prints tables; the same figures go to bench/out, a file
for each part. Exits 1 if a bar is missed: wrong promotions and wrong rollbacks
at most 5 % each, also of what the judge likes for its length; without a shadow replay +0.05 promoted within 360 units,
and −0.2 stopped within 20 responses of the candidate (medians); with all that a promotion needs, +0.30 promoted within
80 units and +0.05 within 250; chains of longer candidates stop before the second; of 20 candidates that are no better
at most 10 % of the fleets promote one; a primary that is truly −0.05 is demoted within 5,000 tasks in 90 %.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from bench.decision import served, shadow
from bench.decision.equality import assert_twin_equals_product
from bench.decision.lifetimes import Lifetime, Watched, lifetimes, simulate_watch
from bench.decision.simulate import Outcome, simulate, wilson
from bench.decision.streams import NOISE, Scenario
from bench.machine import machine, write_figures

HALF = (0.5,)

NULLS = (
    Scenario("A/A, half and half", ramp=HALF),
    Scenario("A/A, ramp"),
    Scenario("A/A, ramp, drift", drift=0.5),
    Scenario("A/A, noisy scores (0.35), ramp", noise=0.35),
    Scenario("A/A, 2 % failures, ramp", success=0.98),
    Scenario("A/A, sticky sessions", sessions=True, ramp=HALF, units=1000),
)
EDGES = (
    Scenario("score +0.10 but success −0.05", effect=0.1, success=0.97, success_effect=-0.05),
    Scenario("score −0.01, the tolerance", effect=-0.01),
)
MISSING = tuple(
    Scenario(f"{effect:+.2f}, {share:.0%} of its bad samples unscored".replace("-", "−"), effect=effect, unscored=share)
    for effect in (0.0, -0.05)
    for share in (0.1, 0.2, 0.4)
)
"""Worlds whose candidate is not scored on what it does badly: it may not gain by that."""
LONGER = (
    Scenario("−0.05, judged +0.05 for ×1.45 in length", effect=0.05, longer=1.45),
    Scenario("−0.05, judged ±0 for ×1.2 in length", effect=0.0, longer=1.2),
    Scenario("+0.05, but 10 % refusals", effect=0.05, refuses=0.1),
)
"""A judge that likes length by +0.10 at ×1.45, in proportion to its logarithm; and what a judge may not see."""
LEFT_TO_AN_AUDITOR = Scenario("−0.05, judged +0.05 for ×1.2 in length", effect=0.05, longer=1.2)
AUDITED = (
    replace(LEFT_TO_AN_AUDITOR, name="−0.05, judged +0.05; half is audited", audited=0.5, truth=-0.05),
    Scenario("A/A, ramp; half is audited", audited=0.5),
)
HONEST = Scenario("+0.05, half is audited", effect=0.05, audited=0.5, truth=0.05, units=1500)
CHAINS = (
    Scenario("+0.05 and ×1.45 in length, five in a row", effect=0.05, longer=1.45, units=1500),
    Scenario("+0.05 and ×1.2 in length, five in a row", effect=0.05, longer=1.2, units=1500),
)
TWENTY = Scenario("A/A, twenty in a row", units=1000)
WATCHES = (
    Scenario("watched, equal", units=5000),
    Scenario("watched, −0.05", effect=-0.05, units=5000),
    Scenario("watched, −0.10", effect=-0.1, units=5000),
    Scenario("watched, −0.05 after 2,000 tasks", effect=-0.05, begins=2000, units=10_000),
)
TRUTHS = (
    Scenario("+0.05", effect=0.05, units=1500),
    Scenario("+0.05, half and half", effect=0.05, ramp=HALF, units=1500),
    Scenario("+0.05, 1 % failures", effect=0.05, success=0.99, units=1500),
    Scenario("+0.05, noise 0.25", effect=0.05, noise=0.25, units=3000),
    Scenario("+0.10", effect=0.1, units=1500),
    Scenario("−0.05", effect=-0.05, units=1500),
    Scenario("−0.20", effect=-0.2, units=1000),
    Scenario("−0.20, held at 5 %", effect=-0.2, ramp=(0.05,), units=1500),
    Scenario("−0.20, noise 0.25", effect=-0.2, noise=0.25, units=1500),
    Scenario("half of its tasks fail", success_effect=-0.5, units=1000),
)
TWO_TYPES = Scenario("", levels=(0.5, 0.97), mix=(0.6, 0.4), ramp=HALF)
"""Three of five tasks are hard and two easy."""
FAMILY = Scenario("", levels=(0.35, 0.5, 0.65, 0.8, 0.6), mix=(0.225, 0.225, 0.225, 0.225, 0.1), units=1500)
"""Four families of tasks, and a fifth that is a tenth of the traffic."""
WORLDS = (
    replace(TWO_TYPES, name="types +0.10 and −0.185: mean −0.014", effects=(0.10, -0.185)),
    replace(TWO_TYPES, name="types +0.10 and −0.152: mean −0.001", effects=(0.10, -0.152)),
    replace(FAMILY, name="+0.10, and a tenth destroyed", effects=(0.1, 0.1, 0.1, 0.1, -0.6)),
    Scenario("+0.05, mean length × 1.95", effect=0.05, longer=1.95),
    Scenario("+0.05, mean length × 2.91", effect=0.05, longer=2.91),
    Scenario("+0.05, length × 1.3, the limit", effect=0.05, longer=1.3),
    Scenario("+0.05, a tenth is × 10.5 as long", effect=0.05, tail=(0.1, 10.5)),
    Scenario("+0.05, a twentieth is × 20 as long", effect=0.05, tail=(0.05, 20.0)),
    Scenario("A/A, ids of 10 % chosen", chosen=0.1, units=1000, ramp=HALF),
    Scenario("−0.05, ids of 20 % chosen", effect=-0.05, chosen=0.2, units=1000, ramp=HALF),
    Scenario("A/A, bursts of 20 of one user", bursts=20),
    Scenario("A/A, a type appears half-way", appears=0.5),
    Scenario("A/A, noise 0.12 and 0.30", candidate_noise=0.3),
    Scenario("A/A, a third never closes", lost=1 / 3),
    Scenario("a program, +0.05, length × 6.9", effect=0.05, longer=6.9, is_program=True),
    Scenario("goal cheaper: equal, as long", goal="cheaper"),
    Scenario("goal cheaper: −0.02, half as long", effect=-0.02, longer=0.5, goal="cheaper"),
)
"""Worlds whose candidate is no better, breaks a limit or destroys a family."""
CHEAPER = Scenario("goal cheaper: equal, half as long", longer=0.5, goal="cheaper", units=5000)
"""A candidate as good at half the cost: it should be promoted."""
WITHOUT_SECRET = Scenario(
    "−0.05, ids of 20 %, no secret", effect=-0.05, chosen=0.2, secret=False, units=1000, ramp=HALF
)
WEEKS = tuple(
    Scenario(f"better on weekdays, mean −0.036; age {days:g} d", effect=0.1, on_weekends=-0.376, days=days, units=9000)
    for days in (0.0, 1.0, 7.0)
)
"""The effect changes with time, so the null holds of no single unit: the minimum age alone helps."""
Results = dict[str, dict[str, Outcome]]
Figures = Mapping[str, object]
"""The figures of a part by name."""
Bars = dict[str, bool]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to simulate, not all")
    options = parser.parse_args()
    started = time.monotonic()
    print(f"{machine()}\n{options.runs} runs each, peeked at each unit; four task types; score noise {NOISE}\n")
    print(f"twin equals product on {assert_twin_equals_product()} units\n")
    bars: Bars = {}
    for name in options.only:
        figures, of_part = PARTS[name](options.runs, options.seed)
        told = {"machine": machine(), "runs": options.runs, "seed": options.seed, "figures": figures}
        write_figures(f"decision-{name}", told)
        print_bars(of_part)
        bars |= of_part
    print(f"\n{time.monotonic() - started:.0f} s, {time.process_time():.0f} CPU-seconds")
    sys.exit(not all(bars.values()))


def simulate_worlds(runs: int, seed: int) -> tuple[Figures, Bars]:
    """The worlds in which an earlier rule failed and others of their kind, and the weeks."""
    results = {one.name: simulate(one, runs, seed, rivals=False) for one in (*WORLDS, WITHOUT_SECRET, *WEEKS)}
    results[CHEAPER.name] = simulate(CHEAPER, runs, seed, rivals=False)
    print("\nWorlds in which nothing may be promoted, and the last: promoted, with its 95 % interval / rolled back")
    for name, found in results.items():
        one = found["ratchet"]
        low, high = wilson(one.promoted, runs)
        print(f"{name:42}{one.promoted:7.2%} [{low:.2%}, {high:.2%}] / {one.rolled_back:7.2%}", flush=True)
    worst = max((one.name for one in WORLDS), key=lambda name: results[name]["ratchet"].promoted)
    low = wilson(results[worst]["ratchet"].promoted, runs)[0]
    cheaper = results[CHEAPER.name]["ratchet"]
    print(f"{CHEAPER.name}: promoted after {cheaper.units_to_promote} units (median, 90 %)")
    return results, {
        f"wrong promotions at worst from {low:.2%} ({worst}), at most 5 %": low <= 0.05,
        f"as good at half the cost: promoted {cheaper.promoted:.1%}, at least 90 %": cheaper.promoted >= 0.9,
    }


def simulate_errors(runs: int, seed: int) -> tuple[Figures, Bars]:
    """Wrong verdicts and speed, beside the rivals."""
    results: Results = {}
    for scenario in (*NULLS, *EDGES, *MISSING, *LONGER, LEFT_TO_AN_AUDITOR, *AUDITED, *TRUTHS, HONEST):
        results[scenario.name] = simulate(scenario, runs, seed)
    nulls = [name for name in results if name.startswith("A/A")]
    errors("Nothing is better or worse: wrong promotions / wrong rollbacks", results, nulls)
    errors("On the edge of a null hypothesis", results, [scenario.name for scenario in EDGES])
    missing = [scenario.name for scenario in MISSING]
    errors("Bad samples of the candidate have no score", results, missing)
    longer = [scenario.name for scenario in LONGER] + [AUDITED[0].name]
    errors("What a judge likes or does not see", results, [*longer, LEFT_TO_AN_AUDITOR.name])
    speed(results, [scenario.name for scenario in (*TRUTHS, HONEST)])
    return results, error_bars(results, nulls, missing, longer)


def simulate_lives(runs: int, seed: int) -> tuple[Figures, Bars]:
    """Candidates in a row, and primaries under watch."""
    chains = {one.name: lifetimes(one, 5, runs, seed) for one in CHAINS}
    chains[TWENTY.name] = lifetimes(TWENTY, 20, runs, seed)
    watches = {one.name: simulate_watch(one, runs, seed) for one in WATCHES}
    lives(chains, watches)
    return chains | watches, life_bars(chains, watches)


PARTS: dict[str, Callable[[int, int], tuple[Figures, Bars]]] = {
    "worlds": simulate_worlds,
    "served": served.report,
    "errors": simulate_errors,
    "lives": simulate_lives,
    "replay": shadow.report,
}


def errors(title: str, results: Results, names: list[str]) -> None:
    print(f"{title}\n{'':42}{'ratchet':>18}{'t-test':>18}{'growthbook':>18}")
    for name in names:
        cells = (f"{one.promoted:7.1%} / {one.rolled_back:6.1%}" for one in results[name].values())
        print(f"{name:42}" + "".join(f"{cell:>18}" for cell in cells))
    print()


def speed(results: Results, names: list[str]) -> None:
    print("Something is: promoted / rolled back; units to promote or, of the candidate, to roll back (median, 90 %)")
    print(f"{'':26}" + "".join(f"{method:>34}" for method in ("ratchet", "t-test", "growthbook")))
    for name in names:
        print(f"{name:26}" + "".join(f"{cell(one):>34}" for one in results[name].values()))


def lives(chains: dict[str, Lifetime], watches: dict[str, Watched]) -> None:
    print("\nA fleet's life: share of the fleets that promoted none, one, two … of the candidates")
    for name, life in chains.items():
        print(f"{name:42}" + "".join(f"{share:9.1%}" for share in life.promotions if share))
    print("\nA primary under watch: demoted; tasks since its promotion until then (median, 90 %)")
    for name, one in watches.items():
        print(f"{name:42}{one.demoted:9.1%}" + (f"; {one.tasks[0]:.0f}, {one.tasks[1]:.0f}" if one.tasks else ""))


def cell(one: Outcome) -> str:
    shown = one.units_to_promote if one.promoted > one.rolled_back else one.candidates_to_roll_back
    when = f"{shown[0]:.0f}, {shown[1]:.0f}" if shown else "–"
    return f"{one.promoted:.1%} / {one.rolled_back:.1%}; {when}"


def error_bars(results: Results, nulls: list[str], missing: list[str], longer: list[str]) -> Bars:
    none_better = [results[name]["ratchet"] for name in nulls]
    promoted, stopped = results["+0.05"]["ratchet"], results["−0.20"]["ratchet"]
    wrong_up = max(one.promoted for one in none_better)
    wrong_down = max(one.rolled_back for one in none_better)
    units = (promoted.units_to_promote or (math.inf,))[0]
    responses = (stopped.candidates_to_roll_back or (math.inf,))[0]
    unscored = max(results[name]["ratchet"].promoted for name in missing)
    liked = max(results[name]["ratchet"].promoted for name in longer)
    return {
        f"promotions of what only the judge likes {liked:.1%}, at most 5 %": liked <= 0.05,
        f"promotions of what is no better, its bad samples unscored {unscored:.1%}, at most 5 %": unscored <= 0.05,
        f"wrong promotions {wrong_up:.1%}, at most 5 %": wrong_up <= 0.05,
        f"wrong rollbacks {wrong_down:.1%}, at most 5 %": wrong_down <= 0.05,
        f"+0.05 promoted after {units:.0f} units, at most 360": units <= 360,
        f"−0.20 stopped after {responses:.0f} of its responses, at most 20": responses <= 20,
    }


def life_bars(chains: dict[str, Lifetime], watches: dict[str, Watched]) -> Bars:
    twice = max(chains[scenario.name].more_than(1) for scenario in CHAINS)
    wrong = chains[TWENTY.name].any
    equal, worse, bad, later = (watches[scenario.name].demoted for scenario in WATCHES)
    return {
        f"chains of longer candidates that promote a second {twice:.1%}, at most 5 %": twice <= 0.05,
        f"fleets that promote one of 20 that are no better {wrong:.1%}, at most 10 %": wrong <= 0.1,
        f"watched, equal: demoted {equal:.1%}, at most 5 %": equal <= 0.05,
        f"watched, −0.05: demoted {worse:.1%} within 5,000 tasks, at least 90 %": worse >= 0.9,
        f"watched, −0.10: demoted {bad:.1%} within 5,000 tasks, at least 99 %": bad >= 0.99,
        f"watched, −0.05 after 2,000 tasks: demoted {later:.1%} within 8,000 more, at least 90 %": later >= 0.9,
    }


def print_bars(bars: Bars) -> None:
    for bar, met in bars.items():
        print(f"{'met   ' if met else 'MISSED'} {bar}", flush=True)


if __name__ == "__main__":
    main()
