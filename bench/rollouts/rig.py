"""A fleet whose tasks programs answer, with workspaces of every kind, and who asks it.

Each rollout makes several calls and names itself in each: its task, its sample, and a word of its own that no other run
has, not even another try of the same sample. So a token that is logged says whose it is. What it leaves in its
workspace says so too. Every second rollout of a group is right.
"""

from __future__ import annotations

import asyncio
import json
import random
import tarfile
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

from bench.faults.supervisor import Supervisor
from bench.long_run import EarlyEnd
from bench.rig import save_tokenizer
from tests.acceptance.brokers import MortalBroker
from tests.acceptance.fleet import RUNNER, Fleet
from tests.acceptance.user import User
from tests.workbench.workspaces.conftest import Server, git

PROGRAM = """
import json, os, sys, urllib.request

def ask(messages):
    body = json.dumps({"model": "any", "messages": messages}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

assert open("given.txt").read() == "given\\n"
task, sample, own = os.environ["RATCHET_TASK_ID"], os.environ["RATCHET_SAMPLE"], os.urandom(8).hex()
messages = []
for turn in range(int(sys.argv[2])):
    messages.append({"role": "user", "content": f"{task} {sample} {own} {turn}"})
    answer = ask(messages)
    assert answer["content"] == messages[-1]["content"], answer
    messages.append({"role": "assistant", "content": answer["content"]})
    open("did.txt", "a").write(f"{own} {turn}\\n")
print("right" if int(sample) % 2 else "wrong")
"""
FILES = {"given.txt": "given\n"}
TURNS = 3
LATENCY_S = 0.2
"""Time that an answer of the model takes."""
AT_ONCE = 8
OPEN = 16
"""Tasks at a time: as many as the runner takes, and as many again at the other steps."""
LOOK_EVERY_S = 0.05
DEADLINE_S = 7200


@dataclass
class Rig:
    broker: MortalBroker
    fleet: Fleet
    user: Asking
    supervisor: Supervisor
    draw: random.Random
    mark: str
    """The mark in the command of each program."""
    temporary: Path
    """The folder of all temporary files of the fleet."""
    complaints: list[str] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    pids: set[int] = field(default_factory=set)
    """Pids of the fleet's processes, those of earlier starts too."""
    published: bool = False
    """True once no more tasks will be asked."""

    @property
    def answered(self) -> int:
        return len(self.user.ledger.answers)

    @property
    def is_over(self) -> bool:
        """True once all tasks are asked and answered."""
        return self.published and not self.user.ledger.unanswered

    async def publish(self, count: int, end: EarlyEnd, due: Callable[[], int] | None = None) -> None:
        """Publish `count` tasks, or fewer when the end comes early. `due()`: how many may be published by now."""
        try:
            await self.user.publish_as_answered(count, end, due or (lambda: count))
        finally:
            self.published = True

    @property
    def kills(self) -> int:
        return sum(count for name, count in self.struck.items() if " " not in name)

    def note_pids(self) -> None:
        self.pids |= {member.pid for member in self.fleet}


class Asking(User):
    """Tasks whose right answer is `right`; their workspaces lie in the task, in a folder, in a repository, in an
    archive, in turns."""

    def __init__(self, amqp_url: str, namespace: str, workspaces: list[dict[str, Any]], **given: Any) -> None:
        super().__init__(amqp_url, namespace, **given)
        self._workspaces = workspaces

    def task(self, task_id: str, deadline: datetime | None = None) -> bytes:
        number = int(task_id.rpartition("-")[2])
        body = json.loads(super().task(task_id, deadline or datetime.fromtimestamp(_later(), UTC)))
        return json.dumps(
            body | {"input": "go", "reference": "right", "workspace": self._workspaces[number % len(self._workspaces)]}
        ).encode()

    async def publish_as_answered(self, count: int, end: EarlyEnd, due: Callable[[], int]) -> None:
        """Publish so many, and keep some open, so that there is work at every step until the last is asked."""
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                while (self.open >= OPEN or (number >= due() and self.open > 0)) and not end.asked:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_EVERY_S)
                if end.asked:
                    break
                group.create_task(self._publish_one(f"{self._prefix}-{number:07d}"))
                await asyncio.sleep(0)

    @property
    def open(self) -> int:
        """The number of tasks asked and not answered."""
        return len(self.ledger.attempted - self.ledger.answers.keys())

    def is_right(self, result: Mapping[str, Any]) -> bool:
        return bool(result.get("response") == "right" and result.get("score") == 1.0)


def _later() -> float:
    return datetime.now(UTC).timestamp() + DEADLINE_S


@asynccontextmanager
async def rollouts(
    broker: MortalBroker,
    folder: Path,
    seed: int,
    *,
    samples: int,
    hurried: float = 0.0,
    turns: int = TURNS,
    program: str = PROGRAM,
) -> AsyncIterator[Rig]:
    """Run the rig, ready within the block and then stopped in good order. Every user may pass `folder`."""
    server = Server(folder / "served")
    try:
        fleet, mark = _fleet(broker, folder, server, turns, program)
        namespace = fleet.namespace
        user = Asking(broker.url, namespace, _workspaces(folder, server), samples=samples, hurried=hurried)
        rig = Rig(broker, fleet, user, Supervisor(fleet), random.Random(seed), mark, folder / "temporary")
        async with rig.supervisor.at_work(user):
            rig.note_pids()
            try:
                yield rig
            finally:
                rig.note_pids()
    finally:
        server.close()


def _fleet(broker: MortalBroker, folder: Path, server: Server, turns: int, code: str) -> tuple[Fleet, str]:
    program, temporary = folder / "program", folder / "temporary"
    program.mkdir()
    (program / "solver.py").write_text(code)
    temporary.mkdir()
    mark = f"ratchet-rollouts-{uuid.uuid4().hex}"
    (folder / "programs.toml").write_text(
        '[agents.small]\nprograms = ["solver"]\n\n[programs.solver]\n'
        f'command = ["python3", "-I", "-S", "/agent/solver.py", "{mark}", "{turns}"]\n'
        f'binds = {{ "/agent" = "{program}" }}\n'
    )
    settings = {
        "RATCHET_AGENT_ECHO_LATENCY_S": str(LATENCY_S),
        "RATCHET_AGENT_TOKENIZER": save_tokenizer(folder / "tokenizer"),
        "RATCHET_SANDBOX_RUNS_AT_ONCE": str(AT_ONCE),
        "RATCHET_WORKSPACE_FOLDERS": str(folder / "given"),
        "RATCHET_WORKSPACE_URLS": f"{server.url}/",
        "RATCHET_WORKSPACE_CACHE": str(folder / "cache"),
        "TMPDIR": str(temporary),
    }
    namespace = f"{uuid.uuid4().hex[:8]}."
    programs = folder / "programs.toml"
    how = {"detached": True, "forked": True}
    return Fleet(folder / "fleet", broker.url, namespace, programs=programs, environment=settings, **how), mark


def _workspaces(folder: Path, server: Server) -> list[dict[str, Any]]:
    (folder / "given").mkdir()
    repository = server.folder / "shop"
    repository.mkdir(parents=True)
    for place in (folder / "given", repository):
        for name, text in FILES.items():
            (place / name).write_text(text)
    git(repository, "init", "-q")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "x")
    archive = _archive()
    (server.folder / "given.tar.gz").write_bytes(archive)
    return [
        {"files": FILES},
        {"folder": str(folder / "given")},
        {"git": {"url": f"{server.url}/shop", "commit": git(repository, "rev-parse", "HEAD")}},
        {"archive": {"url": f"{server.url}/given.tar.gz", "sha256": sha256(archive).hexdigest()}},
    ]


def _archive() -> bytes:
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in FILES.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, BytesIO(text.encode()))
    return packed.getvalue()


def runner_folder(rig: Rig) -> Path:
    """Return the folder of finished rollouts."""
    return Path(rig.fleet[RUNNER].environment["RATCHET_RUNNER_DIR"]) / "rollouts"
