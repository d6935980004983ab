"""Installs what programs need for their sandboxes: environments and images. `ratchet programs install` does it.

As a program, `python -m ratchet.programs.installing`, it installs what the file of RATCHET_PROGRAMS needs: the job that
runs before runners in containers, in their own image. With a folder as its argument it installs there what the programs
on its stdin need, a JSON object of declarations, and reads no setting: for runners, of agents that are registered.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from ratchet.programs.declared import Program, declared_programs
from ratchet.programs.environments import Environments
from ratchet.programs.images.installing import AnotherInstalls, NotInstalled, Say
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings


def install(
    programs: Mapping[str, Program], names: Collection[str], environments: Environments, say: Say
) -> Iterator[tuple[str, Path]]:
    """Each name with its folder, once it is there. Raises NotInstalled."""
    wanted = {one for name in names for one in programs[name].environments(name).values()}
    for name, requirements in sorted(wanted):
        yield name, environments.install(name, requirements, say)
    for name in names:
        if (image := programs[name].image) is not None:
            yield name, environments.images.install(image, say)


def is_installed(name: str, program: Program, environments: Environments) -> bool:
    return all(environments.ready(*one) for one in program.environments(name).values()) and (
        program.image is None or environments.images.find(program.image) is not None
    )


def needs(name: str, program: Program) -> list[str]:
    """Name what is installed for it, for people."""
    wants = [one for _, listed in program.environments(name).values() for one in listed]
    return [*wants, *([program.image.named] if program.image else [])]


def main() -> str | None:
    if len(sys.argv) > 1:
        return _install_given(Path(sys.argv[1]))
    settings = FleetSettings.read()
    try:
        programs = declared_programs(settings.programs) if settings.programs else {}
        for name, place in install(programs, programs, Environments(settings.program_environments), _say):
            _say(f"{name} is in {place}")
    except (NotInstalled, SettingsError) as error:
        return str(error)
    return None


def _install_given(folder: Path) -> str | None:
    programs = {name: Program.model_validate(one) for name, one in json.load(sys.stdin).items()}
    try:
        for name, place in _waiting_install(programs, Environments(folder)):
            _say(f"{name} is in {place}")
    except NotInstalled as error:
        return str(error)
    return None


def _waiting_install(programs: Mapping[str, Program], environments: Environments) -> Iterator[tuple[str, Path]]:
    """Install as `install` does, after anybody else who installs in the same folder."""
    while True:
        try:
            yield from install(programs, programs, environments, _say)
        except AnotherInstalls:
            time.sleep(1.0)
        else:
            return


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
