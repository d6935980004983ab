"""Engines by name, from the entry points of installed packages. Nothing heavy is imported but the engine asked for."""

from __future__ import annotations

from functools import partial
from importlib.metadata import entry_points

from services.agent.engines.engine import Engine, EngineKind
from services.agent.engines.own_process.engine_process import EngineProcess
from services.agent.settings import AgentSettings
from services.errors import SettingsError

GROUP = "ratchet.engines"
BATCH_GROUP = "ratchet.batch_engines"
"""Of those that take one batch at a time: each runs in a process of its own."""


def make_engine(settings: AgentSettings) -> Engine:
    """The engine the settings name, not yet started. Raises SettingsError for an unknown name or a missing library.

    For one that runs in its own process, a missing library is noticed at its start.
    """
    if takes_one_batch_at_a_time(settings.agent_engine):
        return EngineProcess(partial(engine_here, settings), max_batch=settings.agent_max_batch)
    return engine_here(settings)


def takes_one_batch_at_a_time(name: str) -> bool:
    return name in entry_points(group=BATCH_GROUP).names


def engine_here(settings: AgentSettings) -> Engine:
    """The same, in this process, whichever it is."""
    found = {entry.name: entry for group in (GROUP, BATCH_GROUP) for entry in entry_points(group=group)}
    if settings.agent_engine not in found:
        raise SettingsError(
            f"RATCHET_AGENT_ENGINE={settings.agent_engine!r}: no such engine; installed are {sorted(found)}"
        )
    try:
        engine: type[EngineKind] = found[settings.agent_engine].load()
    except ImportError as error:
        raise SettingsError(
            f"the engine {settings.agent_engine!r} can't be imported ({error}): pip install 'ratchet[agent]'"
        ) from error
    return engine.from_settings(settings)
