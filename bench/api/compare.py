"""Rounds in which the orchestrator and the bare handler take turns on one broker, at each number of clients.

The orchestrator has no agents here: what it admits piles up in a queue, as what the bare handler publishes does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.api.posting import WARM_UP_S, Posted, Posting
from bench.pipeline.cpu import cpu_seconds
from tests.acceptance.fleet import ORCHESTRATOR, Fleet, Member
from tests.private_broker import free_port

CLIENTS = (1, 16, 256)
OURS, BARE = "orchestrator", "bare FastAPI"
ENVIRONMENT = {"RATCHET_LOG_LEVEL": "WARNING", "RATCHET_API_REQUESTS_PER_S": "0", "RATCHET_SAMPLES": "1"}


@dataclass(frozen=True, slots=True)
class Line:
    """One server at one number of clients: medians over the rounds."""

    name: str
    clients: int
    requests_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    """CPU time of the server for each request."""
    others: int


def compare(url: str, *, rounds: int, seconds: float, clients: Sequence[int] = CLIENTS) -> list[Line]:
    found: dict[tuple[str, int], list[tuple[Posted, float]]] = {}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for name in (OURS, BARE):
            with serving(name, url) as server:
                for many in clients:
                    measured = measure(server, Posting(server.port, many, seconds))
                    found.setdefault((name, many), []).append(measured)
    return [line(name, many, taken) for (name, many), taken in found.items()]


def measure(server: Member, posting: Posting) -> tuple[Posted, float]:
    """Return the client's figures, and the server's CPU milliseconds a request, without the warm-up's share."""
    before = cpu_seconds({"server": [server.pid]})["server"]
    command = [sys.executable, "-m", "bench.api.posting", json.dumps(asdict(posting))]
    run = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    posted = Posted(**json.loads(run.stdout))
    spent = cpu_seconds({"server": [server.pid]})["server"] - before
    share = posting.seconds / (posting.seconds + WARM_UP_S)
    print(f"  {server.name:14}{posting.clients:5}{posted.accepted / posted.seconds:9.0f} /s", file=sys.stderr)
    return posted, 1000 * spent * share / posted.accepted


@contextmanager
def serving(name: str, url: str) -> Iterator[Member]:
    """Run one of the two servers, ready within the block."""
    with TemporaryDirectory(prefix="ratchet-bench-api-") as folder:
        fleet = Fleet(Path(folder), url, namespace="api.", environment=ENVIRONMENT)
        member = fleet[ORCHESTRATOR] if name == OURS else bare(Path(folder), url)
        member.start()
        try:
            member.wait_until_ready()
            yield member
        finally:
            assert member.process is not None
            member.process.terminate()
            member.process.wait()


def bare(folder: Path, url: str) -> Member:
    port = free_port()
    return Member(BARE, "bench.api.bare", port, {}, folder / "bare.log", arguments=(str(port), url, "bare."))


def line(name: str, clients: int, taken: Sequence[tuple[Posted, float]]) -> Line:
    posted = [one for one, _ in taken]
    return Line(
        name=name,
        clients=clients,
        requests_per_s=median(one.accepted / one.seconds for one in posted),
        p50_ms=median(one.p50_ms for one in posted),
        p99_ms=median(one.p99_ms for one in posted),
        cpu_ms=median(cpu for _, cpu in taken),
        others=sum(one.others for one in posted),
    )


def table(lines: Sequence[Line]) -> str:
    """Ratios are over the bare handler at the same number of clients."""
    heads = (
        f"{'':14}{'clients':>8}{'requests/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}{'of bare':>9}{'per CPU':>9}"
    )
    rows = [heads]
    for one in sorted(lines, key=lambda one: (one.clients, one.name)):
        other = next(bare for bare in lines if bare.name == BARE and bare.clients == one.clients)
        rows.append(
            f"{one.name:14}{one.clients:8}{one.requests_per_s:12.0f}{one.p50_ms:9.2f}{one.p99_ms:9.2f}{one.cpu_ms:9.2f}"
            f"{one.requests_per_s / other.requests_per_s:9.2f}{other.cpu_ms / one.cpu_ms:9.2f}"
        )
    return "\n".join(rows)
