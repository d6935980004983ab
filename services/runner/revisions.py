"""The revision of each program of this runner, kept up with what lies in its folders. Blocks; give it a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from ratchet.programs.declared import Programs
from ratchet.programs.revision import Look, look_at, revision_of
from ratchet.service.telemetry import Log
from schemas.messages.runner_rollouts import DeclaredProgram
from schemas.messages.work import Work

log = Log("runner")

LOOK_EVERY_S = 1.0
LOOK_SHARE = 20
"""The pause after a look, as a multiple of the time that it took, reading what changed included."""


class Revisions:
    def __init__(self, programs: Programs, seconds: Callable[[], float] = time.monotonic) -> None:
        self._programs = programs
        self._seconds = seconds
        self._lock = threading.Lock()
        self._known: dict[str, tuple[Look, str]] = {}
        self._next_look: dict[str, float] = {}
        self._look_s: dict[str, float] = {}

    def of(self, name: str) -> str | None:
        """Return it as of a second ago at most, where a look is quick; None for a program whose folders can't be
        read."""
        with self._lock:
            began = self._seconds()
            if began >= self._next_look.get(name, float("-inf")):
                self._look(name)
                ended = self._seconds()
                self._next_look[name] = max(began + LOOK_EVERY_S, ended + LOOK_SHARE * self._look_s.get(name, 0.0))
            known = self._known.get(name)
            return known[1] if known else None

    async def why_another(self, work: Work) -> str | None:
        """Return why no program here is the one that the Work is about; None where one is, and where any will do."""
        name, revision = work.arm.program, work.arm.program_revision
        if work.programs is not None or name is None or revision is None:
            return None
        has = name in self._programs.by_agent[work.agent_id]
        here = await asyncio.to_thread(self.of, name) if has else None
        if here == revision:
            return None
        found = f"revision {here[:8]}" if here else "none that can be read" if has else "none of that name"
        return f"its experiment is about program {name} in revision {revision[:8]}, and here is {found}"

    def declared_programs(self) -> tuple[DeclaredProgram, ...]:
        """Return the programs of all agents, without those that can't be read."""
        named = ((agent, name) for agent, names in self._programs.by_agent.items() for name in names)
        found = [(agent, name, self.of(name)) for agent, name in named]
        return tuple(
            DeclaredProgram(agent_id=agent, name=name, revision=revision) for agent, name, revision in found if revision
        )

    def _look(self, name: str) -> None:
        program = self._programs[name]
        began = self._seconds()
        try:
            look = look_at(program)
            known = self._known.get(name)
            if known is None or known[0] != look:
                revision = revision_of(program)
                if known is not None and known[1] != revision:
                    log.info("program-changed", f"{name} is another program now: {revision[:8]}, not {known[1][:8]}")
                self._known[name] = look, revision
        except OSError as error:
            if self._known.pop(name, None) is not None or name not in self._next_look:
                log.warning("program-unreadable", f"{name}: what it binds can't be read: {error}")
        finally:
            self._look_s[name] = self._seconds() - began
