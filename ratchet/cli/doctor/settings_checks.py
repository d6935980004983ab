"""What `ratchet doctor` says of the settings in its environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ratchet.cli.doctor.check import Check
from ratchet.service.errors import SettingsError
from ratchet.service.settings_check import require_usable, unknown_names


def settings_checks(environment: Iterable[str]) -> Iterator[Check]:
    for sentence in unknown_names(environment):
        yield Check("settings", "warn", sentence, "correct the name, or unset it")
    try:
        require_usable()
    except SettingsError as error:
        yield Check("settings", "fail", str(error), "correct or unset what is named")
