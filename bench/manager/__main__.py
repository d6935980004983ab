"""`python -m bench.manager`: what the manager promises, measured.

Shares of tenants and waits of priorities in simulated time; a job of many tasks while processes are killed; a job of
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
from pathlib import Path

from bench.manager import agents, fleet, simulated, sockets
from tests.acceptance.brokers import mortal_broker
from tests.ratchet.http.access.tokens_for_tests import Mint
from tests.services.manager.postgres import postgres

PARTS = (
    *("simulated", "job", "whole", "priority", "paired", "budgets", "postgres", "mixed", "many", "shares", "kills"),
    *("sockets", "agents"),
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
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        if "simulated" in given.parts:
            show("shares", simulated.shares())
            show("waits", simulated.waits())
        if not set(given.parts) - {"simulated"}:
            return
        with mortal_broker(place / "broker") as broker:
            if "job" in given.parts:
                with postgres() as server, fleet.one_process(place / "job", broker, server) as house:
                    show("job", fleet.one_job(house, given.tasks, given.kills))
            if "whole" in given.parts:
                with postgres() as server, fleet.whole_fleet(place / "whole", broker, server) as house:
                    show("job of a whole fleet", fleet.one_job(house, given.tasks, given.kills))
            if "agents" in given.parts:
                show("agents", agents.first_answers(place / "agents", broker, 10))
            if "priority" in given.parts:
                with fleet.whole_fleet(place / "priority", broker) as house:
                    show("priority", fleet.overtaking(house, given.behind))
            if "paired" in given.parts:
                with fleet.whole_fleet(place / "paired", broker) as house:
                    show("paired", fleet.beside_direct(house, given.paired, given.rounds))
            prices = place / "prices.toml"
            prices.write_text(PRICES)
            priced = {"RATCHET_PRICES": str(prices)}
            asked = (given.clients, given.each, given.budget, min(given.kills, 6))
            if "budgets" in given.parts:
                with fleet.one_process(place / "budgets", broker, **priced) as house:
                    show("budgets", fleet.budgets(house, *asked))
            if "postgres" in given.parts:
                with (
                    postgres() as server,
                    fleet.one_process(place / "postgres", broker, server, 3, **priced) as house,
                ):
                    show("postgres", fleet.budgets(house, *asked))
            if "many" in given.parts:
                with fleet.one_process(place / "many", broker) as house:
                    show("many", fleet.many_jobs(house, 60, 100))
            if "shares" in given.parts:
                mint = Mint(place / "keys")
                keys = {"RATCHET_API_PUBLIC_KEYS": str(mint.keys.jwks), "RATCHET_API_HOSTS": "127.0.0.1"}
                with fleet.one_process(place / "shares", broker, **keys) as house:
                    show("shares of processes", fleet.shares(house, mint, given.tasks, given.seconds))
            if "kills" in given.parts:
                with fleet.one_process(place / "kills", broker) as house:
                    show("kills", fleet.calls_under_kills(house, given.clients, given.seconds))
            if "sockets" in given.parts:
                with fleet.whole_fleet(place / "sockets", broker) as house:
                    show("sockets", asyncio.run(sockets.delays(house, 500, given.seconds)))
            if "mixed" in given.parts:
                with fleet.one_process(place / "mixed", broker) as house:
                    show("mixed", fleet.measure_mix(house, place, given.callers, given.seconds, given.rounds))


def show(part: str, found: dict[str, object]) -> None:
    print(json.dumps({part: found}), flush=True)


if __name__ == "__main__":
    main()
