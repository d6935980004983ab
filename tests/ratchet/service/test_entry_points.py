"""What packages register is found by name, and what can't be had is said with what there is and what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from ratchet.service.entry_points import EntryPoints
from ratchet.service.errors import SettingsError


@pytest.fixture
def lamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EntryPoints:
    """Installed as `pip` would: a folder on the path with the metadata of a distribution."""
    package = tmp_path / "lamps-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: lamps\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[ratchet.lamps]\nred = pathlib:Path\ngone = no_such_module:Lamp\nempty = pathlib:NoSuchLamp\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return EntryPoints("ratchet.lamps", "lamp", SettingsError, "light")


def test_it_is_found_and_imported_by_its_name(lamps: EntryPoints) -> None:
    assert lamps.names == {"red", "gone", "empty"}
    assert lamps.load("red") is Path


def test_a_name_that_is_not_there_is_said_with_those_that_are(lamps: EntryPoints) -> None:
    with pytest.raises(SettingsError, match="there is no lamp 'blue'; installed are empty, gone, red"):
        lamps.load("blue")


@pytest.mark.parametrize("name", ["gone", "empty"])
def test_what_can_not_be_imported_says_what_to_install(lamps: EntryPoints, name: str) -> None:
    lamps.require(name)
    with pytest.raises(SettingsError, match=f"lamp '{name}' can't be loaded .* pip install -e '.\\[light]'"):
        lamps.load(name)
