"""Engines by name, from the entry points of installed packages. Nothing heavy is imported but the engine asked for."""

from __future__ import annotations

from importlib.metadata import entry_points

from services.agent.engines.engine import Engine
from services.agent.settings import AgentSettings
from services.errors import SettingsError

GROUP = "ratchet.engines"


def make_engine(settings: AgentSettings) -> Engine:
    """The engine the settings name, not yet started. Raises SettingsError for an unknown name or a missing library."""
    found = entry_points(group=GROUP)
    if settings.agent_engine not in found.names:
        raise SettingsError(
            f"RATCHET_AGENT_ENGINE={settings.agent_engine!r}: no such engine; installed are {sorted(found.names)}"
        )
    try:
        engine: type[Engine] = found[settings.agent_engine].load()
    except ImportError as error:
        raise SettingsError(
            f"the engine {settings.agent_engine!r} can't be imported ({error}): pip install 'ratchet[agent]'"
        ) from error
    return engine.from_settings(settings)
