"""Engines by name, from the entry points of installed packages. Nothing heavy is imported but the engine asked for."""

from __future__ import annotations

from functools import partial

from ratchet.service.entry_points import EntryPoints
from ratchet.service.errors import SettingsError
from services.agent.engines.engine import BatchEngine, Engine, EngineKind
from services.agent.engines.own_process.engine_process import EngineProcess
from services.agent.settings import AgentSettings

ENGINES = EntryPoints("ratchet.engines", "engine", SettingsError, "agent")
BATCH_ENGINES = EntryPoints("ratchet.batch_engines", "engine", SettingsError, "agent")
"""Engines that take one batch at a time: each runs in a process of its own."""


def make_engine(settings: AgentSettings) -> Engine:
    """The engine the settings name, not yet started. Raises SettingsError for an unknown name or a missing library.

    For one that runs in its own process, a missing library is noticed at its start.
    """
    name = settings.agent_engine
    check_engine(name)
    if is_batch_engine(name):
        return EngineProcess(partial(make_batch_engine, settings), max_batch=settings.agent_max_batch)
    kind: type[EngineKind] = ENGINES.load(name)
    return kind.from_settings(settings)


def check_engine(name: str) -> None:
    """Raises SettingsError for one that is not installed. Loads nothing."""
    installed = ENGINES.names | BATCH_ENGINES.names
    if name not in installed:
        raise SettingsError(
            f"RATCHET_AGENT_ENGINE={name!r}: no such engine; installed are {', '.join(sorted(installed))}"
        )


def make_batch_engine(settings: AgentSettings) -> BatchEngine:
    """Make an engine of `ratchet.batch_engines`, in this process. Raises SettingsError for a missing library."""
    kind: type[BatchEngine] = BATCH_ENGINES.load(settings.agent_engine)
    return kind.from_settings(settings)


def is_batch_engine(name: str) -> bool:
    return name in BATCH_ENGINES.names
