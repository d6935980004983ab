"""Many recorded conversations on a whole fleet, and what is killed in the middle of them: the agent, `ratchet record`
itself, the broker.

Each task is a group of runs of one program, which calls the model a number of times and prints an answer that some runs
have right. Whoever recorded a task and was killed comes back with the same command, but for a few, whose tasks must end
at their deadline. Left out: kills of the orchestrator and the scorer, which are rows of bench.faults.
"""

from __future__ import annotations

import itertools
import logging
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import psutil

from bench.long_run import EarlyEnd, Pace
from bench.rig import save_tokenizer
from tests.acceptance.brokers import MortalBroker
from tests.acceptance.fleet import AGENT, Fleet
from tests.programs import environment

PROGRAM = """
import json, os, sys, urllib.request

def ask(messages):
    body = json.dumps({"model": "any", "messages": messages}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

messages = [{"role": "user", "content": "so?"}]
with open(sys.argv[1], "a") as begun:
    begun.write(" ".join([str(os.getpid()), os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]]) + "\\n")
for turn in range(int(sys.argv[2])):
    messages += [ask(messages), {"role": "user", "content": "and " * 8 + str(turn)}]
print("right" if int(os.environ["RATCHET_SAMPLE"]) % 2 else "wrong")
"""
LATENCY_S = "0.2"
KILLED, ENDS = -9, (0, 4)
"""Exit codes of the command; the second: its task has a Result. With others it says that broker or agent are away."""
AGAIN_S = 3.0
MOST_KILLS = 3
"""Kills of one task's command: it must end even where a start takes longer than the time between kills."""
BACK_WITHIN_S = 1800.0
"""The deadline of a task that somebody comes back for."""
NOBODY_BACK_S = 45.0
PROGRESS_WITHIN_S = 300.0
"""A task comes to its end at least so often."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """`at_once`: tasks that are recorded side by side, of `samples` runs each. `left`: nobody comes back for these."""

    tasks: int
    samples: int
    turns: int
    at_once: int
    left: frozenset[str] = frozenset()
    kill_every_s: float = 4.0

    @property
    def ids(self) -> list[str]:
        return [f"talk-{number}" for number in range(self.tasks)]


@dataclass
class Account:
    """Counts of kills, and exit code and output of each command that came to its end, by task."""

    kills: dict[str, int] = field(default_factory=dict)
    exits: dict[str, int] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)
    refused: int = 0
    """Commands that were typed while the broker or the agent was away, and said so."""
    seconds: float = 0.0
    load: str = ""
    ended_early: bool = False
    keys_refused: int = 0
    """Keys refused by a recorder that ran on after their program was gone."""
    complaints: list[str] = field(default_factory=list)

    def note(self, what: str) -> None:
        self.kills[what] = self.kills.get(what, 0) + 1


class Given(NamedTuple):
    """A program's process id, and the base URL and key that it was given."""

    pid: int
    url: str
    key: str

    def runs(self, begun: Path) -> bool:
        """Tell whether the process runs and is still the program that wrote to the file."""
        try:
            return str(begun) in psutil.Process(self.pid).cmdline()
        except psutil.Error:
            return False

    def refuses_key(self) -> bool | None:
        """Tell whether the server at the URL refuses the key; None where nobody answers."""
        request = Request(f"{self.url}/models", headers={"Authorization": f"Bearer {self.key}"})
        try:
            with urlopen(request, timeout=5):
                return False
        except HTTPError as error:
            return error.code == 401
        except OSError:
            return None


class Recordings:
    """Users who run `ratchet record`, for one fleet."""

    def __init__(self, fleet: Fleet, folder: Path, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        tokenizer = save_tokenizer(folder / "tokenizer")
        self._where = ("--url", f"http://127.0.0.1:{fleet[AGENT].port}", "--tokenizer", tokenizer)
        self._settings = {
            "RATCHET_AMQP_URL": fleet.amqp_url,
            "RATCHET_NAMESPACE": fleet.namespace,
            "RATCHET_LOGS_DIR": str(fleet.logs),
        }
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._killed: Counter[str] = Counter()
        self._gone: set[Given] = set()
        self._tried: set[Given] = set()
        self._lock = threading.Lock()
        self._given_up = False
        self.account = Account()

    def start_file(self, task_id: str) -> Path:
        """The file into which the task's programs write their pid, base URL and key."""
        return self._folder / f"{task_id}.begun"

    def programs_of(self, task_id: str) -> list[Given]:
        """Return the task's programs, killed ones too."""
        begun = self.start_file(task_id)
        lines = begun.read_text().splitlines(keepends=True) if begun.exists() else []
        runs = [line.split() for line in lines if line.endswith("\n")]
        return [Given(int(pid), url, key) for pid, url, key in runs]

    def try_keys(self) -> None:
        """Try the keys of programs that were gone at the last look already, while their recorder may run on."""
        with self._lock:
            running = list(self._running)
        for task_id in running:
            for one in self.programs_of(task_id):
                if one in self._tried or one.runs(self.start_file(task_id)):
                    continue
                if one not in self._gone:
                    self._gone.add(one)
                    continue
                self._tried.add(one)
                refused = one.refuses_key()
                self.account.keys_refused += refused is True
                if refused is False:
                    self.account.complaints.append(f"{task_id}: the key {one.key[:12]}… outlived its rollout")

    def record(self, task_id: str) -> None:
        """Run the command of a task until it ends by itself, or, of a task that is left, until it was killed."""
        left, gives_up_at = task_id in self._plan.left, time.monotonic() + BACK_WITHIN_S
        while (code := self._once(task_id, NOBODY_BACK_S if left else BACK_WITHIN_S)) not in ENDS:
            if (code == KILLED and left) or time.monotonic() > gives_up_at or self._given_up:
                break
            if code != KILLED:
                self.account.refused += 1
                time.sleep(AGAIN_S)
        self.account.exits[task_id] = code

    def kill_one(self, draw: random.Random) -> bool:
        """Kill a command whose programs have begun, those of tasks that are left first. False where none has."""
        with self._lock:
            often = {task_id for task_id, kills in self._killed.items() if kills >= MOST_KILLS}
            begun = [task_id for task_id in self._running if task_id not in often and self.start_file(task_id).exists()]
            chosen = [task_id for task_id in begun if task_id in self._plan.left] or begun
            if not chosen:
                return False
            task_id = draw.choice(chosen)
            self._running[task_id].kill()
            self._killed[task_id] += 1
        return True

    def give_up(self) -> None:
        """Kill all commands, and start no more."""
        with self._lock:
            self._given_up = True
            for process in self._running.values():
                process.kill()

    def _once(self, task_id: str, deadline_s: float) -> int:
        command = [sys.executable, "-m", "services.cli", "record", *self._where]
        command += ["--task-id", task_id, "--input", "x", "--reference", "right", "--samples", str(self._plan.samples)]
        command += ["--deadline", str(deadline_s), "--", sys.executable, "-c", PROGRAM]
        process = subprocess.Popen(
            [*command, str(self.start_file(task_id)), str(self._plan.turns)],
            cwd=self._folder,
            env=environment(self._settings),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with self._lock:
            self._running[task_id] = process
            if self._given_up:
                process.kill()
        _, said = process.communicate()
        with self._lock:
            del self._running[task_id]
        self.account.said[task_id] = said
        return process.returncode


@contextmanager
def recording(broker: MortalBroker, folder: Path, plan: Plan) -> Iterator[tuple[Fleet, Recordings]]:
    environment = {"RATCHET_AGENT_ECHO_LATENCY_S": LATENCY_S}
    fleet = Fleet(folder / "fleet", broker.url, environment=environment, detached=True, forked=True)
    fleet.start()
    try:
        yield fleet, Recordings(fleet, folder, plan)
        fleet.stop()
    finally:
        fleet.kill()


def strike(
    broker: MortalBroker, fleet: Fleet, recordings: Recordings, plan: Plan, seed: int, end: EarlyEnd
) -> list[str]:
    """Record the tasks of the plan, and go on killing one part after the other until all are at their end.

    Returns the tasks: all, or those that had begun when the end came early. Raises TimeoutError.
    """
    draw, began, pace, account = random.Random(seed), time.monotonic(), Pace(plan.tasks), recordings.account
    with ThreadPoolExecutor(plan.at_once) as people:
        asked = {task_id: people.submit(recordings.record, task_id) for task_id in plan.ids}
        try:
            _kill_until_done(broker, fleet, recordings, plan, draw, asked, pace, end)
        except BaseException:
            for one in asked.values():
                one.cancel()
            recordings.give_up()
            raise
    for one in asked.values():
        if not one.cancelled():
            one.result()
    account.seconds, account.load, account.ended_early = round(time.monotonic() - began, 1), pace.load, end.asked
    return [task_id for task_id, one in asked.items() if not one.cancelled()]


def _kill_until_done(
    broker: MortalBroker,
    fleet: Fleet,
    recordings: Recordings,
    plan: Plan,
    draw: random.Random,
    asked: Mapping[str, Future[None]],
    pace: Pace,
    end: EarlyEnd,
) -> None:
    """Kill parts in turn until all tasks are done. Once the end is asked for, kill nothing and begin no more tasks."""
    account, done, changed = recordings.account, 0, time.monotonic()
    for what in itertools.cycle(("agent", "recorder", "broker", "recorder")):
        time.sleep(plan.kill_every_s)
        recordings.try_keys()
        if end.asked:
            for one in asked.values():
                one.cancel()
        if (over := sum(one.done() and not one.cancelled() for one in asked.values())) > done:
            done, changed = over, time.monotonic()
        if all(one.done() for one in asked.values()):
            return
        if time.monotonic() - changed > PROGRESS_WITHIN_S:
            raise TimeoutError(f"no task came to its end for {PROGRESS_WITHIN_S:g} s: {account}")
        if not end.asked:
            _kill(what, broker, fleet, recordings, draw)
        log.info("%s; %s", account.kills, pace.describe(done))


def _kill(what: str, broker: MortalBroker, fleet: Fleet, recordings: Recordings, draw: random.Random) -> None:
    if what == "recorder" and not recordings.kill_one(draw):
        return
    if what == "agent":
        fleet[AGENT].kill()
        fleet[AGENT].start()
    if what == "broker":
        broker.kill()
        began = time.monotonic()
        broker.start()
        time.sleep(time.monotonic() - began)  # it is there as long as it was away, or no command would ever get on
    recordings.account.note(what)
