"""`python -m bench.faults`: tasks flow for minutes while services and the broker are killed at random; then the books.

Every service dies again and again, by a kill from outside or at a failpoint drawn at random, and the broker several
times in between. Exit code 0 only if nothing was lost, nothing was logged twice, and every queue is empty at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.machine import machine
from tests.acceptance.brokers import MortalBroker, mortal_broker
from tests.acceptance.faults import STEPS_OF, Failpoint, Restarter, under_fire
from tests.acceptance.fleet import Fleet
from tests.acceptance.user import User

OUT = Path(__file__).parent / "out" / "faults.json"
REST_S = 180.0
PAUSES_S = (0.5, 4.0)
PASSAGES = (1, 300)


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="minutes under fire (5)")
    parser.add_argument("--tasks-per-s", type=float, default=50.0, help="tasks published a second (50)")
    parser.add_argument("--samples", type=int, default=4, help="group size (4)")
    parser.add_argument("--broker-kills", type=int, default=3, help="kill -9 of the broker, evenly spread (3)")
    parser.add_argument("--seed", type=int, default=None, help="of the draws; printed, random if not given")
    parser.add_argument("--folder", type=Path, help="keep logs and data here (else a temporary folder)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    given = parser.parse_args(arguments)
    given.seed = random.randrange(1 << 32) if given.seed is None else given.seed
    return given


class Assassin:
    """Draws whom to kill, when, and how."""

    def __init__(self, restarter: Restarter, seed: int) -> None:
        self._restarter = restarter
        self._draw = random.Random(seed)

    async def run(self, seconds: float) -> None:
        """Half of the victims are armed with a failpoint for their next life; if that kills them, no one else does."""
        async with asyncio.timeout(seconds):
            while True:
                await asyncio.sleep(self._draw.uniform(*PAUSES_S))
                victim = self._draw.choice(list(self._restarter.fleet))
                if self._draw.random() < 0.5:
                    step = self._draw.choice(STEPS_OF[victim.name])
                    failpoint = Failpoint(step, self._draw.randint(*PASSAGES))
                    self._restarter.plan.setdefault(victim.name, []).append(failpoint)
                self._restarter.kill(victim)


async def kill_broker(broker: MortalBroker, times: int, seconds: float) -> None:
    for _ in range(times):
        await asyncio.sleep(seconds / (times + 1))
        await broker.kill_and_start_again()


async def attack(given: argparse.Namespace, folder: Path) -> tuple[User, Restarter, int]:
    seconds = 60 * given.minutes
    with mortal_broker(folder / "broker") as broker:
        restarter = Restarter(Fleet(folder / "fleet", broker.url), {})
        user = User(broker.url, samples=given.samples)
        async with under_fire(restarter, user, tasks_per_s=given.tasks_per_s, rest_s=REST_S):
            killing = asyncio.create_task(kill_broker(broker, given.broker_kills, seconds))
            try:
                await Assassin(restarter, given.seed).run(seconds)
            except TimeoutError:
                await killing
            restarter.disarm()
        return user, restarter, broker.kills


def found(given: argparse.Namespace, user: User, restarter: Restarter, broker_kills: int) -> dict[str, Any]:
    ledger = user.ledger
    died = Counter(f"{service} {step}" for service, step in restarter.died_at)
    return {
        "machine": machine(),
        "seed": given.seed,
        "minutes": given.minutes,
        "ledger": ledger.rows(),
        "kills": dict(sorted(died.items())) | {"broker": broker_kills},
        "complaints": ledger.complaints()
        + [f"{queue} still holds {depth} messages" for queue, depth in restarter.left.items()]
        + [f"crashed: {crash}" for crash in restarter.crashes]
        + [f"{name} stopped with exit code {code}" for name, code in restarter.exit_codes.items() if code],
    }


def text(books: dict[str, Any]) -> str:
    lines = [f"{books['machine']}; {books['minutes']:g} minutes under fire, seed {books['seed']}", ""]
    lines += [f"{name:32}{count:10,}" for name, count in books["ledger"].items()]
    lines += ["", f"killed, {sum(books['kills'].values())} times in all:"]
    lines += [f"  {victim:30}{count:10,}" for victim, count in books["kills"].items()]
    return "\n".join([*lines, "", *(books["complaints"] or ["the books balance, and every queue is empty"])])


def main() -> int:
    given = options()
    for client in ("aiormq", "aio_pika", "pika", "asyncio"):
        logging.getLogger(client).setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="ratchet-faults-") as temporary:
        user, restarter, broker_kills = asyncio.run(attack(given, given.folder or Path(temporary)))
    books = found(given, user, restarter, broker_kills)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(books, indent=2) + "\n")
    print(json.dumps(books, indent=2) if given.json else text(books))
    return 1 if books["complaints"] else 0


if __name__ == "__main__":
    sys.exit(main())
