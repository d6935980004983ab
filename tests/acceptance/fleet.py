"""A whole fleet as processes on one broker: started, waited for, killed, started again, stopped.

One orchestrator, an agent per name and a scorer, with the echo engine and a verifier unless the environment given says
otherwise. It supervises nothing: what is killed stays down until its member is started again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.private_broker import free_port
from tests.programs import ForkedProgram
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
ORCHESTRATOR, AGENT, SCORER, RUNNER = "orchestrator", "agent", "scorer", "runner"
ONLY_ANEW = "LD_PRELOAD"
"""A variable that the loader reads, so a fork would not follow it."""
READY_S = 120.0
STOP_S = 60.0


class FleetError(Exception):
    """A process of the fleet failed; the message names it and shows the end of its log."""


@dataclass
class Member:
    """One process of the fleet, over several starts."""

    name: str
    module: str
    port: int
    environment: dict[str, str]
    log: Path
    arguments: tuple[str, ...] = ()
    detached: bool = False
    forked: bool = False
    process: subprocess.Popen[bytes] | ForkedProgram | None = None
    lives: int = 0

    def start(self, extra: Mapping[str, str] | None = None) -> None:
        environment = {**os.environ, **self.environment, **(extra or {})}
        if self.forked and ONLY_ANEW not in environment:
            where: dict[str, Any] = {"folder": REPOSITORY, "environment": environment, "log": self.log}
            self.process = ForkedProgram(self.module, *self.arguments, **where, detached=self.detached)
        else:
            self.process = self._started_anew(environment)
        self.lives += 1

    def _started_anew(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", self.module, *self.arguments],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=self.detached,
            )

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} was never started"
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code: None while it runs, negative if a signal ended it."""
        assert self.process is not None, f"{self.name} was never started"
        return self.process.poll()

    def kill(self) -> None:
        """Kill with SIGKILL, and wait until it is gone."""
        assert self.process is not None, f"{self.name} was never started"
        self.process.kill()
        self.process.wait()

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of an HTTP GET; status 0 if it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except (URLError, OSError) as error:
            return 0, str(error)

    def wait_until_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until it is ready. Raises FleetError with its reason and the end of its log."""
        answer = (0, "")

        def ready_or_gone() -> bool:
            nonlocal answer
            answer = self.get("/readyz")
            return answer[0] == 200 or self.exit_code is not None

        with suppress(AssertionError):
            wait_until(ready_or_gone, timeout_s=timeout_s)
        if answer[0] != 200:
            raise FleetError(f"{self.name} is not ready (exit code {self.exit_code}): {answer}\n{self.log_tail()}")

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


@dataclass
class Fleet:
    """The processes, their folder, and the broker, on which the namespace is theirs alone."""

    folder: Path
    amqp_url: str
    namespace: str = ""
    agents: tuple[str, ...] = ("small",)
    foreign_agents: tuple[str, ...] = ()
    """Agents that the fleet has and that are not started here."""
    foreign_scorer: bool = False
    programs: Path | None = None
    """The file of the programs that answer tasks, with a runner for them."""
    environment: Mapping[str, str] = field(default_factory=dict)
    detached: bool = False
    """A Ctrl-C in the terminal is for whoever runs the fleet alone."""
    forked: bool = False
    """True: its processes are forks of one that has imported all, which saves two seconds of CPU each."""
    members: dict[str, Member] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        self._enlist(ORCHESTRATOR, "services.orchestrator", "RATCHET_ORCHESTRATOR_HTTP_PORT")
        for agent in self.agents:
            name = AGENT if agent == self.agents[0] else f"{AGENT}-{agent}"
            if agent not in self.foreign_agents:
                self._enlist(name, "services.agent", "RATCHET_AGENT_HTTP_PORT", {"RATCHET_AGENT_ID": agent})
        if not self.foreign_scorer:
            self._enlist(SCORER, "services.scorer", "RATCHET_SCORER_HTTP_PORT")
        if self.programs or "RATCHET_MANAGER_URL" in self.environment:
            members = {agent: AGENT if agent == self.agents[0] else f"{AGENT}-{agent}" for agent in self.agents}
            own = ((agent, self.members[name]) for agent, name in members.items() if name in self.members)
            where = ",".join(f"{agent}=http://127.0.0.1:{member.port}" for agent, member in own)
            folder = str(self.folder / "runner")
            told = {"RATCHET_RUNNER_AGENTS": where, "RATCHET_RUNNER_DIR": folder}
            if SCORER in self.members:
                told["RATCHET_RUNNER_SCORER_URL"] = f"http://127.0.0.1:{self.members[SCORER].port}"
            self._enlist(RUNNER, "services.runner", "RATCHET_RUNNER_HTTP_PORT", told)

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def _enlist(self, name: str, module: str, port_variable: str, extra: Mapping[str, str] | None = None) -> None:
        port = free_port()
        environment = {
            "RATCHET_EXPERIMENT_MIN_AGE_S": "0",
            "RATCHET_AMQP_URL": self.amqp_url,
            "RATCHET_NAMESPACE": self.namespace,
            "RATCHET_AGENTS": ",".join(self.agents),
            "RATCHET_LOGS_DIR": str(self.logs),
            "RATCHET_ADAPTERS_DIR": str(self.folder / "adapters"),
            "RATCHET_AGENT_ENGINE": "echo",
            "RATCHET_GOLDEN_FROM_TRAFFIC": "false",  # an echo with an adapter's name before it is too long for the gate
            "RATCHET_SCORER": "verifier:exact",
            "RATCHET_EXTERNAL_SCORER": str(self.foreign_scorer).lower(),
            **({"RATCHET_PROGRAMS": str(self.programs)} if self.programs else {}),
            **self.environment,
            **(extra or {}),
            port_variable: str(port),
        }
        log = self.folder / f"{name}.log"
        self.members[name] = Member(name, module, port, environment, log, detached=self.detached, forked=self.forked)

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    @property
    def pids(self) -> dict[str, int]:
        return {member.name: member.pid for member in self}

    def start(self) -> Fleet:
        """Start all and wait until each is ready. Raises FleetError, with nothing left running."""
        for member in self:
            member.start()
        try:
            self.wait_until_ready()
        except FleetError:
            self.kill()
            raise
        return self

    def wait_until_ready(self, timeout_s: float = READY_S) -> None:
        for member in self:
            member.wait_until_ready(timeout_s)

    def stop(self, timeout_s: float = STOP_S) -> dict[str, int]:
        """Send SIGTERM to all; return exit codes. Raises FleetError, and kills all, if one does not end in time."""
        running = [member for member in self if member.process is not None]
        for member in running:
            if member.exit_code is None:
                os.kill(member.pid, signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        return {member.name: self._ended(member, deadline - time.monotonic()) for member in running}

    def _ended(self, member: Member, within_s: float) -> int:
        assert member.process is not None
        try:
            return member.process.wait(max(within_s, 0.1))
        except subprocess.TimeoutExpired:
            self.kill()
            raise FleetError(f"{member.name} did not end within {STOP_S:.0f} s\n{member.log_tail()}") from None

    def kill(self) -> None:
        """Kill all that runs with SIGKILL."""
        for member in self:
            if member.process is not None and member.exit_code is None:
                member.kill()

    def readiness(self) -> dict[str, str]:
        """Return what each answers on /readyz, for the message of a failure."""
        return {member.name: json.dumps(member.get("/readyz")) for member in self}
