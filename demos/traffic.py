"""Users without end, for a fleet that runs already: `python -m demos.traffic`, until SIGTERM.

Every so many answers a line says who answered and how well. Leaves out the story of `ratchet demo`, which has a fleet
of its own: what is trained, tried and promoted meanwhile, `docker compose logs orchestrator trainer` and Grafana show.
"""

from __future__ import annotations

import signal
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator

from demos.books import MOST_OPEN
from demos.sort.demo import users_tasks
from schemas.messages.result import Result
from services.cli.fleet.folder import FleetAccess
from services.cli.terminal import print_raw

SEED = 1
SAMPLES = 8
LINE_EVERY = 64
STALL_S = 300.0


def lines(results: Iterable[Result], every: int = LINE_EVERY) -> Iterator[str]:
    """A line for each `every` results: by adapter version, how many and their mean score."""
    scores: defaultdict[str, list[float]] = defaultdict(list)
    failed = 0
    for number, result in enumerate(results, start=1):
        if result.status != "ok" or result.score is None:
            failed += 1
        else:
            scores[result.adapter_version or "?"].append(result.score)
        if number % every == 0:
            means = (
                f"{version} {len(had)} with mean score {sum(had) / len(had):.3f}" for version, had in scores.items()
            )
            yield f"{number} answered; of the last {every}: {', '.join(sorted(means))}; {failed} without a score"
            scores.clear()
            failed = 0


def main() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    access = FleetAccess.here()
    asked = users_tasks(SEED, uuid.uuid4().hex[:8], samples=SAMPLES)
    try:
        with access.client(most_open=MOST_OPEN, stall_s=STALL_S) as client:
            for line in lines(client.batch(asked)):
                print_raw(line)
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
