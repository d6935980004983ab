"""Programs of agents that are registered with the manager: fetched twice a second, installed, tried, and reported.

What requirements need is installed by a process of its own, which gets none of this runner's settings and of pip's
wheels alone, so that no code of theirs runs outside of a sandbox. A program that can't be had is reported as broken,
and nothing else happens.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import httpx
from pydantic import ValidationError

from ratchet.programs.declared import Program, faults
from ratchet.programs.environments import Environments
from ratchet.service.errors import RatchetError, SettingsError, one_line
from ratchet.service.telemetry import Log
from schemas.api.agents import AgentReport, AgentsProgram, AgentsPrograms, RunnerReport

log = Log("runner")

FETCH_EVERY_S = 0.5
TRY_AGAIN_S = 60.0
"""Seconds after which a program that is broken is tried again: what it requires may be there now."""
INSTALL_S = 1800.0
GONE = 0
"""Revision of an agent that was removed. Its program stays, for tasks that are under way."""
MOST_KNOWN = 2000
PASSED_ON = ("PATH", "LANG", "LC_ALL", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "PIP_INDEX_URL")
"""Variables that the process which installs gets: none of them is a setting of the fleet."""
Try = Callable[[str, Program], Awaitable[None]]


class Known(NamedTuple):
    """A registered agent as this runner has it. `program`: the newest that works, with all that it needs."""

    model: str
    revision: int
    state: Literal["installing", "ready", "broken"]
    reason: str | None = None
    program: Program | None = None
    tried_at: float = float("-inf")


@dataclass(eq=False)
class Registered:
    """`try_program` raises SettingsError for one that can't be run here. `models`: agents whose address is known."""

    http: httpx.AsyncClient
    url: str
    runner: str
    environments: Path
    models: Collection[str]
    try_program: Try

    def __post_init__(self) -> None:
        self._known: dict[str, Known] = {}
        self._wanted: dict[str, AgentsProgram] = {}
        self._preparing: dict[str, asyncio.Task[None]] = {}
        self._installing = asyncio.Lock()
        self._fetching: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._trouble: str | None = None
        self.fetches = 0
        """Counts the answers of the manager."""

    def start(self) -> None:
        self._fetching = asyncio.create_task(self._keep_fetching())

    async def stop(self) -> None:
        running = [*self._preparing.values(), *([self._fetching] if self._fetching else [])]
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def program(self, name: str) -> Program | None:
        """Return the newest program of an agent that works here; also of one that was removed meanwhile."""
        known = self._known.get(name)
        return known.program if known else None

    def why_not(self, name: str, since: int) -> str | None:
        """Return why an agent has no program here, where that will last; None where it may still come.

        `since`: the number of fetches when it was asked for first.
        """
        known = self._known.get(name)
        if known and known.state == "broken":
            return f"is broken here: {known.reason}"
        return "is not registered" if self.fetches > since + 1 and name not in self._wanted else None

    async def fetch(self) -> None:
        """Report, and take what the manager wants this runner to have. Raises RatchetError, HTTPError."""
        reports = tuple(
            AgentReport(name=name, revision=one.revision, state=one.state, reason=one.reason)
            for name, one in self._known.items()
            if name in self._wanted
        )
        body = RunnerReport(runner=self.runner, agents=reports, keeps_programs=True).model_dump(mode="json")
        answer = await self.http.post(f"{self.url}/v1/runner-reports", json=body)
        if not answer.is_success:
            raise RatchetError(f"the manager refuses this runner ({answer.status_code}): {one_line(answer.text, 200)}")
        items = AgentsPrograms.model_validate_json(answer.content).items
        self._wanted = {one.name: self._wanted[one.name] if one.program is None else one for one in items}
        self.fetches += 1
        for name in self._known.keys() - self._wanted.keys() - self._preparing.keys():
            self._known[name] = self._known[name]._replace(revision=GONE)  # by that name another one may come
            if len(self._known) > MOST_KNOWN:
                del self._known[name]
        now = asyncio.get_running_loop().time()
        for name, wanted in self._wanted.items():
            known = self._known.get(name)
            is_new = known is None or known.revision != wanted.revision
            is_due = known is not None and known.state == "broken" and now - known.tried_at >= TRY_AGAIN_S
            if name not in self._preparing and (is_new or is_due):
                program = known.program if known else None
                self._known[name] = Known(wanted.model, wanted.revision, "installing", program=program)
                self._preparing[name] = asyncio.create_task(self._prepare(wanted))

    async def _keep_fetching(self) -> None:
        while True:
            try:
                await self.fetch()
                self._trouble = None
            except (RatchetError, httpx.HTTPError, ValidationError) as error:
                says = one_line(str(error) or type(error).__name__)
                if says != self._trouble:
                    log.warning("no-manager", f"no programs from {self.url}: {says}; those that are here go on")
                self._trouble = says
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(FETCH_EVERY_S):
                    await self._changed.wait()

    async def _prepare(self, wanted: AgentsProgram) -> None:
        name = wanted.name
        before = self._known[name].program
        now = asyncio.get_running_loop().time()
        try:
            program = await self._equip(wanted)
            await self.try_program(name, program)
        except Exception as error:  # whatever a program of strangers does wrong, the runner goes on
            reason = one_line(str(error) or type(error).__name__)
            log.warning("agent-broken", f"registered agent {name}, revision {wanted.revision}: {reason}")
            self._known[name] = Known(wanted.model, wanted.revision, "broken", reason, before, now)
        else:
            log.info("agent-ready", f"registered agent {name}, revision {wanted.revision}", agent_id=wanted.model)
            self._known[name] = Known(wanted.model, wanted.revision, "ready", None, program, now)
        finally:
            del self._preparing[name]
            self._changed.set()

    async def _equip(self, wanted: AgentsProgram) -> Program:
        """Raises SettingsError for what can't be had."""
        if wanted.model not in self.models:
            raise SettingsError(
                f"RATCHET_RUNNER_AGENTS does not say where agent {wanted.model} is, whose model it uses"
            )
        try:
            program = Program.model_validate(wanted.program)
        except ValidationError as error:
            raise SettingsError(faults(error)) from None
        if program.binds or (program.image is not None and program.image.pull is None):
            raise SettingsError("its program binds folders of this machine")
        name = f"registered-{wanted.name}"
        if program.requirements or program.tools or program.image is not None:
            async with self._installing:
                await self._install(name, wanted.program or {})
        return await asyncio.to_thread(program.with_requirements, name, Environments(self.environments), "nothing")

    async def _install(self, name: str, program: dict[str, object]) -> None:
        """Have a process of its own install what the program needs. Raises SettingsError."""
        with tempfile.TemporaryDirectory() as home:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ratchet.programs.installing",
                str(self.environments.absolute()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=installers_environment(os.environ, home),
            )
            try:
                async with asyncio.timeout(INSTALL_S):
                    _, said = await child.communicate(json.dumps({name: program}).encode())
            except TimeoutError:
                raise SettingsError(f"installing what it requires took more than {INSTALL_S:g} s") from None
            finally:
                with suppress(ProcessLookupError):
                    child.kill()
        if child.returncode:
            raise SettingsError(one_line(said.decode(errors="replace").strip()[-600:]))


def installers_environment(environment: Mapping[str, str], home: str) -> dict[str, str]:
    """Return the variables of a process that installs for strangers: no setting of the fleet, and wheels alone."""
    passed_on = {key: value for key, value in environment.items() if key.upper() in PASSED_ON}
    return passed_on | {"HOME": home, "PIP_ONLY_BINARY": ":all:"}
