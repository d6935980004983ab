"""`python -m bench.manager`: what the manager promises, measured.

Waits of priorities in simulated time; a job of many tasks while processes are killed; a job of
priority 10 behind one of priority 1; the job path beside direct publishing, in turns; budgets under several clients,
with one manager over SQLite, and (`postgres`) with three over a PostgreSQL of its own; many calls at once; many jobs at
once; shares of tenants beside one that floods; calls while processes are killed; events at many WebSockets; new agents.
It starts a broker and a manager of its own; for `whole`, `priority`, `paired` and `sockets` a fleet with an echo that
takes 20 ms a task, for `agents` one with a runner. For the others one process answers in its place, behind a queue of
tasks that holds 1,000. `job` and `whole` are over a PostgreSQL, which is killed, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from bench.manager import agents, fleet, simulated, sockets
from tests.acceptance.brokers import MortalBroker, mortal_broker
from tests.ratchet.http.access.tokens_for_tests import Mint
from tests.services.manager.postgres import postgres

PARTS = (
    *("simulated", "job", "whole", "agents", "priority", "paired", "budgets", "postgres", "many", "shares", "kills"),
    *("sockets", "mixed"),
)
PRICES = 'currency = "EUR"\n[agents.small]\nprompt = 0\nsampled = 1000\nsamples = 1\nmax_tokens = 16\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, choices=[*PARTS, []])
    parser.add_argument("--tasks", type=int, default=100_000, help="of the one large job")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--behind", type=int, default=50_000)
    parser.add_argument("--paired", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--each", type=int, default=2_000)
    parser.add_argument("--budget", default="50")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0, help="of `mixed`, `shares`, `kills` and `sockets`")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, mortal_broker(Path(folder) / "broker") as broker:
        for part in given.parts:
            print(json.dumps({part: measure(part, Path(folder) / part, broker, given)}), flush=True)


def measure(part: str, folder: Path, broker: MortalBroker, given: argparse.Namespace) -> dict[str, Any]:
    folder.mkdir()
    one_process, whole_fleet = (partial(one, folder, broker) for one in (fleet.one_process, fleet.whole_fleet))
    mint, prices = Mint(folder / "keys"), folder / "prices.toml"
    prices.write_text(PRICES)
    priced = {"RATCHET_PRICES": str(prices)}
    keys = {"RATCHET_API_PUBLIC_KEYS": str(mint.keys.jwks), "RATCHET_API_HOSTS": "127.0.0.1"}
    budget = given.clients, given.each, given.budget, min(given.kills, 6)
    match part:
        case "simulated":
            return simulated.waits()
        case "job":
            with postgres() as server, one_process(server) as house:
                return fleet.one_job(house, given.tasks, given.kills)
        case "whole":
            with postgres() as server, whole_fleet(server) as house:
                return fleet.one_job(house, given.tasks, given.kills)
        case "agents":
            return agents.first_answers(folder, broker, 10)
        case "priority":
            with whole_fleet() as house:
                return fleet.overtaking(house, given.behind)
        case "paired":
            with whole_fleet() as house:
                return fleet.beside_direct(house, given.paired, given.rounds)
        case "budgets":
            with one_process(**priced) as house:
                return fleet.budgets(house, *budget)
        case "postgres":
            with postgres() as server, one_process(server, 3, **priced) as house:
                return fleet.budgets(house, *budget)
        case "many":
            with one_process() as house:
                return fleet.many_jobs(house, 60, 100)
        case "shares":
            with one_process(**keys) as house:
                return fleet.shares(house, mint, given.tasks, given.seconds)
        case "kills":
            with one_process() as house:
                return fleet.calls_under_kills(house, given.clients, given.seconds)
        case "sockets":
            with whole_fleet() as house:
                return asyncio.run(sockets.delays(house, 500, given.seconds))
        case _:
            with one_process() as house:
                return fleet.measure_mix(house, folder, given.callers, given.seconds, given.rounds)


if __name__ == "__main__":
    main()
