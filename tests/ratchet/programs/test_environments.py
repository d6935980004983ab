"""What programs require: when it counts as installed, what is told where it is not, and how a program sees it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ratchet.files.folder_lock import FolderLock
from ratchet.programs.declared import Program, declared_programs, read_programs
from ratchet.programs.environments import READY, Environments, make_movable, put_in_place
from ratchet.programs.images.installing import NotInstalled
from ratchet.programs.shipped import inside
from ratchet.service.errors import SettingsError
from ratchet.tools.recorded import read_policy
from schemas.messages.task import Constraints
from workbench.tools.operation import Decision
from workbench.tools.policy import Policy
from workbench.tools.toolbox import OPERATIONS

FILE = """
[agents.small]
programs = ["mine"]

[programs.mine]
command = ["python", "/agent/main.py"]
requirements = ["nothing-of-that-name==1"]
environment = { PATH = "/opt/bin" }
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "programs.toml").write_text(FILE)
    return tmp_path / "programs.toml"


def installed(folder: Path, name: str, *requirements: str) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / READY).write_text(json.dumps(requirements))
    return place


def test_what_is_not_installed_is_told_with_what_to_type(file: Path, tmp_path: Path) -> None:
    told = f"nothing-of-that-name==1 not installed in .*mine; type: ratchet programs install mine --file {file}"
    with pytest.raises(SettingsError, match=told):
        read_programs(file, ("small",), tmp_path)
    installed(tmp_path, "mine", "nothing-of-that-name==0.9")
    with pytest.raises(SettingsError, match=told):
        read_programs(file, ("small",), tmp_path)


def test_what_comes_with_ratchet_is_installed_by_its_name(file: Path, tmp_path: Path) -> None:
    file.write_text('[agents.small]\nprograms = ["aider"]\n')

    with pytest.raises(SettingsError, match=r"aider-chat==[\d.]+ not installed .*: ratchet programs install aider$"):
        read_programs(file, ("small",), tmp_path)


def test_a_program_sees_what_it_requires_and_finds_its_python_first(file: Path, tmp_path: Path) -> None:
    place = installed(tmp_path / "environments", "mine", "nothing-of-that-name==1")

    mine = read_programs(file, ("small",), tmp_path / "environments")["mine"]

    assert mine.binds == {"/environment": place}
    assert mine.environment["PATH"] == "/environment/bin:/opt/bin"


def test_a_program_with_tools_sees_them_and_its_own_policy_where_it_has_one(tmp_path: Path) -> None:
    program = Program(command=("it",), tools=True, data={"/ratchet/policy.toml": "mine"})
    for name, requirements in program.environments("it").values():
        installed(tmp_path, name, *requirements)

    equipped = program.with_requirements("it", Environments(tmp_path), "")

    assert equipped.data["/ratchet/policy.toml"] == "mine"
    assert "ratchet" in equipped.data["/ratchet/run.py"]
    assert (equipped.binds["/ratchet/packages/ratchet"] / "tools").is_dir()


def equipped(tmp_path: Path, **given: Any) -> Program:
    program = Program.model_validate({"command": ("it",), "tools": True} | given)
    for name, requirements in program.environments("it").values():
        installed(tmp_path, name, *requirements)
    return program.with_requirements("it", Environments(tmp_path), "")


def policy_of(program: Program, tmp_path: Path) -> Policy:
    (tmp_path / "policy.toml").write_text(program.data["/ratchet/policy.toml"])
    return read_policy(tmp_path / "policy.toml")


def test_each_role_has_the_tools_that_its_policy_allows(tmp_path: Path) -> None:
    by_role = {"*": {"http_get": "deny"}, "the reviewer": {"*": "deny", "file_read": "allow"}}
    policy = policy_of(equipped(tmp_path, tool_policy=by_role), tmp_path)

    def allowed(role: str) -> set[str]:
        its = policy.for_role(role)
        return {name for name, one in OPERATIONS.items() if its.decides(one) is Decision.ALLOW}

    assert policy.isolation == "around"
    assert allowed("the reviewer") == {"file_read"}
    assert "file_write" in allowed("generator")
    assert policy.for_role("generator").operations == {"http_get": Decision.DENY}


@pytest.mark.parametrize("given", [{}, {"data": {"/ratchet/policy.toml": '[operations]\nfile_read = "deny"\n'}}])
def test_a_task_lowers_limits_and_tools_and_never_raises_them(given: dict[str, Any], tmp_path: Path) -> None:
    program = equipped(tmp_path, limits={"calls": 8, "tokens": 100, "seconds": 9}, **given)

    within = program.within(Constraints(calls=4, tokens=1_000, seconds=2.5, tools=("file_read", "http_get")))

    assert (within.limits.calls, within.limits.tokens, within.limits.seconds) == (4, 100, 2.5)
    policy = policy_of(within, tmp_path)
    decided = {name: policy.decides(OPERATIONS[name]) for name in ("file_read", "file_write", "http_get")}
    of_program = Decision.DENY if given else Decision.ALLOW
    assert decided == {"file_read": of_program, "file_write": Decision.DENY, "http_get": Decision.ASK}
    assert program.within(None) is program and program.within(Constraints()) == program


@pytest.mark.parametrize(
    ("declared", "tool", "says"),
    [
        ({}, "file_read", None),
        ({}, "file_writ", "there is no tool 'file_writ': is 'file_write' meant?"),
        ({"tool_policy": {"*": {"file_read": "deny"}}}, "file_read", "its tool_policy denies it"),
        ({"tool_policy": {"*": {"*": "deny"}, "a": {"file_read": "allow"}}}, "file_read", None),
        ({"tools": False}, "file_read", "none of the tools of Ratchet"),
    ],
)
def test_a_task_that_names_a_tool_that_is_not_declared_is_told(
    declared: dict[str, Any], tool: str, says: str | None
) -> None:
    program = Program.model_validate({"command": ("it",), "tools": True} | declared)

    said = program.undeclared_tool(Constraints(tools=(tool,)))

    assert said is None if says is None else says in str(said)
    assert program.undeclared_tool(Constraints(tools=())) is program.undeclared_tool(None) is None


def test_all_that_come_with_ratchet_are_declared_and_said_on_their_page() -> None:
    found = declared_programs(None)
    page = (Path(__file__).parents[3] / "docs" / "runner.md").read_text()

    assert {"aider", "mini-swe-agent", "shell", "tool-agent"} <= set(found)
    for name, program in found.items():
        limits = program.limits
        assert re.search(rf"^\| `{name}` \|.*\| {limits.seconds:.0f} s, {limits.calls} calls \|$", page, re.M), name


def test_what_can_not_be_had_is_told_and_does_not_count_as_installed(tmp_path: Path, passable: Path) -> None:
    if os.geteuid() == 0:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o700)
        with pytest.raises(NotInstalled, match=f"{closed} may be passed by root alone.*RATCHET_PROGRAM_ENVIRONMENTS"):
            Environments(closed).install("it", ("nothing",), print)
    wanted = ("nothing",)
    (passable / ".it.partial").write_text("a file, where an environment has to go")
    with pytest.raises(NotInstalled, match=r"-m venv .* failed \(apt-get install python3-venv.*it"):
        Environments(passable).install("it", wanted, lambda told: None)
    assert not Environments(passable).ready("it", wanted)
    other = FolderLock(passable)
    assert other.try_acquire()
    with pytest.raises(NotInstalled, match=rf"is installed in {passable} right now \(pid {os.getpid()} on .*\)"):
        Environments(passable).install("it", wanted, lambda told: None)
    other.release()


def test_a_program_that_runs_keeps_what_it_sees_while_other_requirements_take_their_place(tmp_path: Path) -> None:
    """A descriptor stays with the folder that it was opened on, like a folder that is bound into a sandbox."""
    place = installed(tmp_path, "it", "wanted==1")
    seen = os.open(place, os.O_PATH | os.O_DIRECTORY)
    told = [Environments(tmp_path).ready("it", ("wanted==1",))]
    for version in ("2", "3"):
        if version == "3":
            os.close(seen)
            seen = os.open(place, os.O_PATH | os.O_DIRECTORY)
        put_in_place(installed(tmp_path, ".it.partial", f"wanted=={version}"), place)
        told.append(Environments(tmp_path).ready("it", (f"wanted=={version}",)))
        with os.fdopen(os.open(READY, os.O_RDONLY, dir_fd=seen)) as file:
            assert json.load(file) == [f"wanted=={int(version) - 1}"]
    os.close(seen)

    assert told == [True] * 3
    assert sorted(one.name for one in tmp_path.iterdir()) == [".it.replaced", "it"]


@pytest.mark.parametrize("folder", ["short", "with a space"])
def test_its_commands_run_wherever_it_lies(tmp_path: Path, folder: str) -> None:
    """A shell finds the interpreter where no kernel takes the path behind #!, as pip writes it."""
    making, place, elsewhere = (tmp_path / folder / name for name in (".it.partial", "it", "seen"))
    (making / "bin").mkdir(parents=True)
    (making / "bin" / "python").symlink_to(sys.executable)
    script = import_module("pip._vendor.distlib.scripts").ScriptMaker(None, str(making / "bin"))
    script.executable, script.variants = str(making / "bin" / "python"), {""}
    script.set_mode = True
    script.make("told = this:main")
    (making / "bin" / "this.py").write_text("import sys\ndef main(): print(sys.argv[1:])\n")
    (making / "bin" / "activate").write_text(f"VIRTUAL_ENV={making}\n")

    make_movable(making, place)
    put_in_place(making, place)
    seen = [subprocess.check_output([place / "bin" / "told", "a b", "$0"], text=True)]
    place.rename(elsewhere)
    (tmp_path / "link").symlink_to(elsewhere / "bin" / "told")
    seen += [subprocess.check_output([tmp_path / "link", "a b", "$0"], text=True)]

    assert seen == ["['a b', '$0']\n"] * 2
    assert (elsewhere / "bin" / "activate").read_text() == f"VIRTUAL_ENV={place}\n"


def test_what_the_tools_import_inside_is_installed_for_them() -> None:
    """It belongs to a requirement of theirs, or to what one requires itself; sniffio is used where it is there."""
    imports = "import ratchet.tools.agent, ratchet.tools.server, workbench.tools.toolbox, workbench.tools.workshop"
    told = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    seen = subprocess.run([sys.executable, "-c", f"{imports}; {told}"], capture_output=True, text=True, check=True)
    needed, waiting = set[str](), [Requirement(one).name for one in inside.TOOLS_REQUIRE]
    while waiting:
        if (name := canonicalize_name(waiting.pop())) not in needed:
            needed.add(name)
            with suppress(PackageNotFoundError):
                waiting += [Requirement(one).name for one in requires(name) or ()]

    owners = {name: set(map(canonicalize_name, of)) for name, of in packages_distributions().items()}
    missing = {name for name in seen.stdout.split() if name in owners and not owners[name] & (needed | {"ratchet"})}
    assert missing - {"_distutils_hack", "sniffio"} == set()
