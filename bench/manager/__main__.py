"""`python -m bench.manager`: what the manager promises, measured.

Shares of tenants and waits of priorities in simulated time; a job of many tasks while processes are killed; a job of
priority 10 behind one of priority 1; the job path beside direct publishing, in turns; budgets under several clients.
It starts a broker and a manager of its own; for `priority` and `paired` a fleet with an echo that takes 20 ms a task,
for `job` and `budgets` one process that answers in its place, behind a queue of tasks that holds 1,000.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from bench.manager import fleet, simulated
from tests.acceptance.brokers import mortal_broker

PARTS = ("simulated", "job", "priority", "paired", "budgets")
PRICES = 'currency = "EUR"\n[agents.small]\nprompt = 0\nsampled = 1000\nsamples = 1\nmax_tokens = 16\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, choices=[*PARTS, []])
    parser.add_argument("--tasks", type=int, default=100_000, help="of the one large job")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--behind", type=int, default=50_000)
    parser.add_argument("--paired", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--each", type=int, default=2_000)
    parser.add_argument("--budget", default="50")
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
                with fleet.one_process(place / "job", broker) as house:
                    show("job", fleet.one_job(house, given.tasks, given.kills))
            if "priority" in given.parts:
                with fleet.whole_fleet(place / "priority", broker) as house:
                    show("priority", fleet.overtaking(house, given.behind))
            if "paired" in given.parts:
                with fleet.whole_fleet(place / "paired", broker) as house:
                    show("paired", fleet.beside_direct(house, given.paired, given.rounds))
            if "budgets" in given.parts:
                prices = place / "prices.toml"
                prices.write_text(PRICES)
                with fleet.one_process(place / "budgets", broker, RATCHET_PRICES=str(prices)) as house:
                    show("budgets", fleet.budgets(house, given.clients, given.each, given.budget))


def show(part: str, found: dict[str, object]) -> None:
    print(json.dumps({part: found}), flush=True)


if __name__ == "__main__":
    main()
