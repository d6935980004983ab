"""python -m bench.ratchet [--rounds 20] [--seed 0]: does it get better by itself, and never worse?

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
import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bench.machine import OUT, machine, write_figures
from bench.ratchet.baseline import TASKS, taught_by_references
from bench.ratchet.book import Book, Round
from bench.ratchet.claims import Claim, baseline_line, claims, figures, table
from bench.ratchet.fleet import fleet, set_environment, settings
from bench.ratchet.judge import Events
from bench.ratchet.model import make_model
from bench.ratchet.picture import svg
from bench.ratchet.quality import Quality
from bench.ratchet.rounds import Rounds
from bench.ratchet.verifier import Verifier
from schemas.messages.work import BASE_VERSION


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    seed, folder = options.seed, OUT / "ratchet" / f"seed-{options.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    logging.basicConfig(filename=folder.with_name("fleet.log"), level=logging.INFO)
    base = make_model(folder / "base", seed)
    set_environment(settings(folder, base))
    book, verifier, events = Book(folder), Verifier(base, folder / "verified", seed), Events()
    if len(book.rounds) < options.rounds:
        asyncio.run(_play(folder, base, book, verifier, events, seed, options.rounds))
    rounds = book.rounds[: options.rounds]
    found = _qualities(rounds, verifier)
    baseline = taught_by_references(folder / "baseline", base, verifier, seed)
    told = print_claims(rounds, found, baseline)
    (OUT / "ratchet.svg").write_text(svg(rounds, found))
    report = {
        "machine": machine(),
        "seed": seed,
        "rounds": [asdict(one) for one in rounds],
        "claims": [asdict(one) for one in told],
        "verified": {version: figures(quality) for version, quality in found.items()},
        "baseline": figures(baseline),
    }
    write_figures("ratchet", report)
    sys.exit(0 if all(one.holds for one in told) else 1)


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


if __name__ == "__main__":
    main()
