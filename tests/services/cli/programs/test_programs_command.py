from __future__ import annotations

import json
from pathlib import Path

from ratchet.programs.environments import READY
from tests.acceptance.ratchet_command import ForkedRatchet

FILE = """
[agents.small]
programs = ["mine", "shell"]

[programs.mine]
coroutine = "agent:solve"
requirements = ["one==1", "other"]
"""


def test_programs_are_listed_with_what_they_require_and_what_to_type(tmp_path: Path) -> None:
    (tmp_path / "programs.toml").write_text(FILE)
    ratchet = ForkedRatchet(tmp_path, {"RATCHET_PROGRAM_ENVIRONMENTS": str(tmp_path)})

    before = ratchet("programs", "list", "--file", "programs.toml")
    assert before.code == 0, before.err
    assert "ratchet programs install mine" in before.out
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / READY).write_text(json.dumps(["one==1", "other"]))
    after = ratchet("programs", "list", "--file", "programs.toml", "--json")

    assert json.loads(after.out) == [
        {"name": "mine", "requires": ["one==1", "other"], "installed": True},
        {"name": "shell", "requires": [], "installed": True},
    ]
    installed = ratchet("programs", "install", "--file", "programs.toml")
    assert (installed.code, installed.out.strip()) == (0, f"mine is in {tmp_path / 'mine'}")


def test_a_program_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    ratchet = ForkedRatchet(tmp_path)

    strange, none = ratchet("programs", "install", "emacs"), ratchet("programs", "install")

    assert (strange.code, none.code) == (2, 2)
    assert "there is no program 'emacs': there are aider, " in strange.err
    assert "name a program: aider, " in none.err
