"""A whole fleet under load whose every part can be broken: its processes, disks, clock, broker and connections.

Each service has a proxy before the broker and a preloaded library; logs, dead letters and adapters lie each on a small
file system of its own. Needs a private RabbitMQ node, a C compiler, and the right to mount. Left out: the trainer,
whose own steps tests/services/trainer kills it at.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.faults.log_copy import LogCopy
from bench.faults.preload import Preload
from bench.faults.steps import PROMOTION, RETENTION, Step
from bench.faults.supervisor import Supervisor
from ratchet.adapters.folder import adapter_sha256
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.claim_store import WAITING
from ratchet.bus.dead_letters.letter import DeadLetter
from ratchet.bus.dead_letters.queue import DeadLetterQueue
from ratchet.logs.names import START_OFFSETS, task_index
from schemas.messages.training import AdapterTrained
from services.orchestrator.ledger.ledger import Ledger
from tests.acceptance.brokers import MortalBroker
from tests.acceptance.fleet import ORCHESTRATOR, Fleet, Member
from tests.acceptance.ledger import LOGS as TASK_LOGS
from tests.acceptance.ledger import SHOWN, lines
from tests.acceptance.user import User
from tests.private_broker import free_port
from tests.ratchet.adapters.making_adapters import published
from tests.services.orchestrator.filling_disk import rows
from tests.services.orchestrator.small_disk import SmallDisk, small_disk
from tests.tcp_proxy import Proxy

REPEATED = "was closed so long ago that its lines are removed"
LOGS, INDEX, ADAPTERS, DEAD_LETTERS = "logs", "index", "adapters", "dead-letters"
DISK_BYTES = 96 * 1024 * 1024
KEEP_BYTES = 50_000
SEGMENT_BYTES = 16_384
SETTINGS = {
    "RATCHET_LOG_KEEP_GB": str(KEEP_BYTES / 1e9),
    "RATCHET_LOG_KEEP_DAYS": "0.5",
    "RATCHET_SEGMENT_BYTES": str(SEGMENT_BYTES),
    "RATCHET_ANCHOR_EVERY_S": "0",
    "RATCHET_LOG_LEVEL": "WARNING",
}
HALT_WITHIN_S = 90.0
ANSWER_WITHIN_S = 60.0
ANSWERS = 10
REST_S = 150.0


@dataclass
class Rig:
    broker: MortalBroker
    fleet: Fleet
    user: User
    supervisor: Supervisor
    preload: Preload
    proxies: dict[str, Proxy]
    disks: dict[str, SmallDisk]
    draw: random.Random
    complaints: list[str] = field(default_factory=list)
    expected_letters: int = 0
    trained: int = 0
    standbys: int = 0

    async def halt_at(self, step: Step) -> bool:
        """Tell whether the step's service stops at one of its failpoints in time; complain if not."""
        failpoint, member = self.draw.choice(step.failpoints), self.fleet[step.service]
        await asyncio.to_thread(member.wait_until_ready, ANSWER_WITHIN_S)
        if step.name == RETENTION:
            await self.supervisor.end(member)
        self.supervisor.arm(member, failpoint)
        if step.name == PROMOTION:
            await self.train()
        if not (halted := await self.supervisor.halts(member, HALT_WITHIN_S)):
            self.complaints.append(f"{step.name}: {step.service} did not come to {failpoint} in {HALT_WITHIN_S:.0f} s")
        return halted

    def resume(self, service: str) -> None:
        self.supervisor.resume(self.fleet[service])

    def kill(self, service: str) -> None:
        self.supervisor.kill(self.fleet[service])

    def start_standby(self) -> Member:
        """Start a second orchestrator, which waits for the first to go; the supervisor does not restart it."""
        self.standbys += 1
        name, first, port = f"{ORCHESTRATOR}-{self.standbys}", self.fleet[ORCHESTRATOR], free_port()
        environment = first.environment | {"RATCHET_ORCHESTRATOR_HTTP_PORT": str(port)}
        log = self.fleet.folder / f"{name}.log"
        standby = replace(first, name=name, port=port, environment=environment, log=log, process=None)
        self.supervisor.take_on(standby)
        standby.start()
        return standby

    def lead(self, standby: Member) -> None:
        """Make the standby the fleet's orchestrator."""
        self.fleet.members[ORCHESTRATOR] = standby

    async def train(self) -> None:
        """Publish an adapter and its AdapterTrained, as a trainer does: it is registered, tried, and rolled back."""
        self.trained += 1
        folder = await asyncio.to_thread(published, self.fleet.folder / ADAPTERS, "small", seed=self.trained)
        message = AdapterTrained(
            request_id=f"run-{self.trained}",
            agent_id="small",
            status="trained",
            adapter_version=folder.name,
            adapter_sha256=adapter_sha256(folder),
        )
        await self.user.send("adapters", message.encode())

    async def answers_again(self) -> float | None:
        """Seconds until tasks are answered that were not yet asked now; None if they are not."""
        began, before = time.monotonic(), set(self.user.ledger.attempted)
        while len(self.user.ledger.answers.keys() - before) < ANSWERS:
            if time.monotonic() - began > ANSWER_WITHIN_S:
                return None
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def count_retries(self) -> int:
        """Count the messages on the retry ladder now: each had an attempt counted."""
        return sum(depth for name, depth in (await self.user.depths()).items() if ".retry." in f".{name}")


@asynccontextmanager
async def running_rig(
    broker: MortalBroker, folder: Path, seed: int, *, tasks_per_s: float, hurried: float = 0.02
) -> AsyncIterator[Rig]:
    """Tasks flow within the block; after it everything comes to rest, is stopped, and counted into `complaints`."""
    namespace = f"{folder.name}."
    with ExitStack() as disks:
        home = folder / "fleet"
        mounted = {
            name: disks.enter_context(small_disk(path, DISK_BYTES))
            for name, path in (
                (LOGS, home / LOGS),
                (DEAD_LETTERS, home / LOGS / DEAD_LETTERS),
                (INDEX, home / INDEX),
                (ADAPTERS, home / ADAPTERS),
            )
        }
        fleet = Fleet(home, broker.url, namespace, environment=SETTINGS | {"RATCHET_INDEX_DIR": str(home / INDEX)})
        preload = Preload(folder)
        proxies = {member.name: Proxy(broker.port) for member in fleet}
        for member in fleet:
            url = broker.url.replace(f":{broker.port}/", f":{proxies[member.name].port}/")
            member.environment |= {"RATCHET_AMQP_URL": url, **preload.environment}
        user = User(broker.url, namespace, hurried=hurried)
        rig = Rig(broker, fleet, user, Supervisor(fleet), preload, proxies, mounted, random.Random(seed))
        copy = LogCopy(fleet.logs, folder / "copy")
        until = asyncio.Event()
        try:
            async with rig.supervisor.at_work(user, copy.run):
                publishing = asyncio.create_task(user.publish(None, per_s=tasks_per_s, until=until))
                try:
                    yield rig
                    until.set()
                    await publishing
                    await _rest(rig)
                finally:
                    publishing.cancel()
                    await asyncio.gather(publishing, return_exceptions=True)
        finally:
            for proxy in proxies.values():
                proxy.close()
        await asyncio.to_thread(_count, rig, copy)


async def _rest(rig: Rig) -> None:
    await rig.user.wait_for_answers(REST_S)
    left = await rig.user.wait_until_at_rest(REST_S, rig.expected_letters)
    rig.complaints += [f"{queue} holds {depth} messages" for queue, depth in left.items()]


def _count(rig: Rig, copy: LogCopy) -> None:
    copy.finish()
    try:
        rig.user.ledger.read_logs(copy.folder)
        rig.complaints += [*rig.user.ledger.complaints(), *_traces_of_lost(rig, copy.folder)]
    except ValueError as error:
        rig.complaints.append(str(error))
    rig.complaints += _index_complaints(rig.fleet.logs, rig.disks[INDEX].folder, copy.folder.with_name("rebuilt"))
    rig.complaints += rig.supervisor.complaints()
    rig.complaints += _letter_complaints(rig)


def _traces_of_lost(rig: Rig, logs: Path) -> list[str]:
    """Say of the first lost tasks who named them last: in the logs, the dead letters and what processes wrote."""
    traces: dict[str, dict[str, str]] = {task: {} for task in sorted(rig.user.ledger.lost)[:SHOWN]}
    for name in TASK_LOGS if traces else ():
        for line in lines(logs, name):
            if (of_task := traces.get(line["task_id"])) is not None:
                of_task[name] = f"logged at {line.get('timestamp') or line.get('admitted_at')}, epoch {line['epoch']}"
    for task, found in traces.items():
        found |= {f"dead letter of {letter.queue}": letter.reason for letter in _letters(rig) if task in letter.reason}
        for member in rig.fleet:
            if said := [line for line in member.log.read_text(errors="replace").splitlines() if task in line]:
                found[member.name] = said[-1]
    return [f"{task}: {found or 'nobody names it'}" for task, found in traces.items()]


def _letters(rig: Rig) -> list[DeadLetter]:
    with open_connection(rig.broker.url) as connection:
        return [letter for letter, _ in DeadLetterQueue(connection, rig.fleet.namespace).letters()]


def _letter_complaints(rig: Rig) -> list[str]:
    """Complain unless the dead letters are those expected, each with a reason, and none waits on disk for its queue.

    Rewards that came again after retention, which is in a hurry here, had removed their task are not counted.
    """
    letters = [letter for letter in _letters(rig) if REPEATED not in letter.reason]
    waiting = list(rig.disks[DEAD_LETTERS].folder.glob(f"*{WAITING}"))
    if len(letters) == rig.expected_letters and not waiting and all(letter.reason for letter in letters):
        return []
    reasons = "; ".join(f"{letter.queue}: {letter.reason}" for letter in letters[:3])
    return [f"{len(letters)} dead letters, {len(waiting)} waiting, {rig.expected_letters} expected: {reasons}"]


def _index_complaints(logs: Path, index_dir: Path, folder: Path) -> list[str]:
    """Compare the index that was used with one built from the logs alone, in a folder of its own."""
    shutil.copytree(logs, folder, ignore=shutil.ignore_patterns(DEAD_LETTERS))
    ledger = Ledger(folder, segment_bytes=SEGMENT_BYTES)

    async def build() -> None:
        await ledger.open()
        await ledger.close()

    asyncio.run(build())
    removed = json.loads((logs / START_OFFSETS).read_text())["sequence"] if (logs / START_OFFSETS).exists() else 0
    used, built = ({row for row in rows(task_index(of)) if row[0] >= removed} for of in (index_dir, folder))
    differing = sorted(used ^ built, key=lambda row: row[0])
    return [f"the index has {row in used and row}, one built anew {row in built and row}" for row in differing[:3]]
