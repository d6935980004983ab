"""Checks the settings of this environment before anything that takes time has begun.

A name that no setting has is worth a warning, with the nearest one that there is; a value that can't be used ends the
start. As a program, `python -m ratchet.service.settings_check [FILE]`, it is a job of docker-compose.yml: exit code 1
for it. FILE: settings as in `.env`, which go before those of the environment; there need be no such file.

Engines and scorers are looked up by name where their service is installed: on Compose in the image of each. Left out:
what only the process itself can tell, such as whether a scorer's server answers.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from dotenv import dotenv_values

from ratchet.service.errors import SettingsError
from ratchet.service.settings import NO_VARIABLES, FleetSettings

PREFIX = "RATCHET_"
ELSEWHERE = frozenset(
    {
        "RATCHET_SECRETS_DIR", "RATCHET_STATE_DIR", "RATCHET_FLEET", "RATCHET_FAILPOINT",
        "RATCHET_API_TOKEN", "RATCHET_API_TOKEN_FILE", "RATCHET_VLLM_ARGS", "RATCHET_RUNBOOKS",
        "RATCHET_TAG", "RATCHET_AMQP_PORT", "RATCHET_API_PORT", "RATCHET_GRAFANA_PORT",
    }
)  # fmt: skip
"""Read by the shared code, by the command line, and by docker-compose.yml: no fields of a service's settings."""


def settings_classes() -> tuple[type[FleetSettings], ...]:
    """Those of all services: their settings.py is in every image, and imports nothing that is heavy."""
    services = importlib.import_module("services")
    for module in pkgutil.iter_modules(services.__path__):
        name = f"{services.__name__}.{module.name}.settings"
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    return (FleetSettings, *sorted(FleetSettings.__subclasses__(), key=lambda one: one.__name__))


def unknown_names(environment: Iterable[str]) -> list[str]:
    """A sentence for each variable that begins as our settings do and is none."""
    known = ELSEWHERE | {PREFIX + field.upper() for one in settings_classes() for field in one.model_fields}
    strange = sorted(name for name in environment if name.startswith(PREFIX) and name.upper() not in known)
    return [_sentence(name, get_close_matches(name.upper(), known, n=1)) for name in strange]


def _sentence(name: str, near: list[str]) -> str:
    return f"{name} is no setting, and nobody reads it" + (f": is {near[0]} meant?" if near else "")


def require_usable(given: Mapping[str, str] = NO_VARIABLES) -> None:
    """Raises SettingsError that names every setting whose value can't be used, whichever service it is for.

    `given`: variables that go before those of the environment.
    """
    faults = dict.fromkeys(fault for one in settings_classes() for fault in one.faults(given))
    if faults:
        raise SettingsError(f"settings can't be used: {'; '.join(faults)}")


def main(file: Path | None = None) -> str | None:
    os.environ.update({name: value or "" for name, value in (dotenv_values(file) if file else {}).items()})
    for sentence in unknown_names(os.environ):
        sys.stderr.write(f"warning: {sentence}\n")
    try:
        require_usable()
    except SettingsError as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
