"""python -m bench.ratchet [--rounds 20] [--seed 0] [--seeds 1]: does it get better by itself, and never worse?

A small model learns three families of tasks from its own traffic, unattended, by a judge that is noisy, likes length
for two rounds, drifts once, and is beside someone who forges feedback for a round, and someone who corrects answers for
two rounds, wrongly in one family. After each round a verifier that nothing in the fleet ever sees scores tasks whose
answers, and half of them whose skills, no model was trained on. Below the rounds stands what one training on right
answers comes to. Each round is kept when it is done: the command goes on where it was left. Everything goes to
bench/out/ratchet.json, a picture beside it. Exits 1 if a claim does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.machine import machine
from bench.ratchet.baseline import TASKS, taught_by_references
from bench.ratchet.book import Book, Round
from bench.ratchet.claims import Claim, baseline_line, claims, figures, table
from bench.ratchet.fleet import fleet, set_environment, settings
from bench.ratchet.judge import Events
from bench.ratchet.model import make_model
from bench.ratchet.picture import draw
from bench.ratchet.quality import Quality
from bench.ratchet.rounds import Rounds
from bench.ratchet.verifier import Verifier
from schemas.messages.work import BASE_VERSION

OUT = Path(__file__).parents[1] / "out"


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")
    logging.basicConfig(filename=_make_folder(options.resume) / "fleet.log", level=logging.INFO)
    reports = [life(seed, options) for seed in range(options.seed, options.seed + options.seeds)]
    told = {"machine": machine(), "lives": [report for report, _ in reports]}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(told, indent=1))
    sys.exit(0 if all(held for _, held in reports) else 1)


def life(seed: int, options: argparse.Namespace) -> tuple[dict[str, object], bool]:
    """One seed's rounds: what is to be written, and whether the claims hold."""
    folder = _make_folder(options.resume / f"seed-{seed}")
    base = make_model(folder / "base", seed)
    set_environment(settings(folder, base) | dict(options.set))
    book, verifier, events = Book(folder), Verifier(base, folder / "verified", seed), Events()
    if len(book.rounds) < options.rounds:
        asyncio.run(_play(folder, base, book, verifier, events, seed, options.rounds))
    rounds = book.rounds[: options.rounds]
    found = _qualities(rounds, verifier)
    baseline = taught_by_references(folder / "baseline", base, verifier, seed)
    held = print_claims(rounds, found, baseline)
    draw(options.json.with_suffix("" if options.seeds == 1 else f".{seed}"), rounds, found)
    report = {
        "seed": seed,
        "rounds": [asdict(one) for one in rounds],
        "claims": [asdict(one) for one in held],
        "verified": {version: figures(quality) for version, quality in found.items()},
        "baseline": figures(baseline),
    }
    return report, all(one.holds for one in held)


async def _play(
    folder: Path, base: Path, book: Book, verifier: Verifier, events: Events, seed: int, until: int
) -> None:
    async with fleet(folder, base, seed) as opened:
        rounds = Rounds(opened, verifier, book, events, seed)
        for number in range(len(book.rounds) + 1, until + 1):
            done = await rounds.run(number)
            what = f"{done.version or 'no version'} {done.outcome} {' '.join(done.events)}"
            print(f"round {number}: {what}; {done.tasks} tasks, {done.seconds:.0f} s; {done.reason}", flush=True)


def _qualities(rounds: Sequence[Round], verifier: Verifier) -> dict[str, Quality]:
    """Return the verifier's figures of each version that it looked at."""
    versions = {BASE_VERSION, *(one.primary for one in rounds), *(one.before for one in rounds)}
    versions |= {one.version for one in rounds if one.version is not None}
    return {version: known for version in sorted(versions) if (known := verifier.read_quality(version)) is not None}


def print_claims(rounds: Sequence[Round], found: Mapping[str, Quality], baseline: Quality) -> list[Claim]:
    print(machine())
    print("held-out tasks by the hidden verifier: means with 95 % intervals")
    print("\n".join([*table(rounds, found), baseline_line(baseline, TASKS)]))
    told = claims(rounds, found)
    for claim in told:
        print(f"{'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.says}\n    {claim.figures}")
    return told


def _make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1, help="lives, one after the other")
    parser.add_argument("--seed", type=int, default=0, help="the first life's seed")
    parser.add_argument("--json", type=Path, default=OUT / "ratchet.json", help="where everything is written")
    parser.add_argument("--resume", type=Path, default=OUT / "ratchet", help="folder of what was done, to go on from")
    parser.add_argument(
        "--set",
        type=lambda text: text.split("=", 1),
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the fleet, as RATCHET_SERVED_MARGIN=0.03; may be given several times",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
