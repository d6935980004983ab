"""Sentences that say what to install name extras there are, and what of them `make setup` installs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from ratchet.service.entry_points import LEFT_TO_PIP, to_install

ROOT = Path(__file__).parents[3]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def of_setup() -> set[str]:
    """The extras that `make setup` names, and those that these take in."""
    named = re.search(r"--editable '\.\[(.+)]'", (ROOT / "Makefile").read_text())
    assert named
    waiting, found = named[1].split(","), set[str]()
    while waiting:
        found.add(one := waiting.pop())
        waiting += [name for needs in EXTRAS[one] for name in _extras_in(needs)]
    return found


def _extras_in(requirement: str) -> list[str]:
    return requirement.removeprefix("ratchet[").rstrip("]").split(",") if requirement.startswith("ratchet[") else []


def test_what_is_left_to_pip_is_what_setup_does_not_install() -> None:
    assert {name for name, needs in EXTRAS.items() if needs} - of_setup() == LEFT_TO_PIP
    assert to_install("qlora") == "pip install -e '.[qlora]' in the clone"
    assert to_install("tools") == "make setup, or pip install -e '.[tools]' in the clone"


def test_what_is_to_be_installed_is_an_extra_and_on_no_index() -> None:
    tops = ("workbench", "ratchet", "services")
    source = "".join(file.read_text() for top in tops for file in (ROOT / top).rglob("*.py"))

    assert "pip install 'ratchet[" not in source
    assert {*re.findall(r"to_install\([\"'](\w+)[\"']\)", source)} <= set(EXTRAS)
