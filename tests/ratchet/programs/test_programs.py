"""The file of programs: what it may say, and what is said of what it may not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ratchet.programs.declared import Program, agents_with_programs, read_programs, roles_by_agent, untrained_agents
from ratchet.programs.shipped.declared import shell
from ratchet.service.errors import SettingsError
from tests.programs import REPOSITORY
from workbench.sandbox.limits import MIB

WHOLE = """
[agents.small]
programs = ["mine"]

[programs.mine]
command = ["python3", "/agent/main.py", "--in={input}", "{workspace}/out"]
task = "file"
answer_file = "out/answer.txt"
environment = { MODE = "fast" }
binds = { "/agent" = "code" }
data = { "/etc/agent.toml" = "x = 1" }

[programs.mine.limits]
seconds = 5
memory_mb = 64
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "programs.toml").write_text(WHOLE)
    return tmp_path / "programs.toml"


def test_a_program_is_what_its_declaration_says(file: Path) -> None:
    programs = read_programs(file, ("small", "coder"))

    assert programs.by_agent == {"small": ("mine",)}
    mine = programs["mine"]
    assert mine.binds == {"/agent": file.parent / "code"}
    assert mine.command_for("x") == ("python3", "/agent/main.py", "--in=/task/input", "/workspace/out")
    limits = mine.limits.in_sandbox(2.5)
    assert (limits.wall_s, limits.cpu_s, limits.memory_bytes) == (2.5, 5, 64 * MIB)


def test_an_agent_knows_whether_programs_answer_for_it_and_loads_none(file: Path) -> None:
    file.write_text(WHOLE.replace('["mine"]', '["not-there"]'))

    assert agents_with_programs(file, ("small", "coder")) == {"small"}
    assert agents_with_programs(None, ("small",)) == frozenset()
    assert read_programs(None, ("small",)).by_agent == {}


def test_each_role_of_an_agents_programs_is_an_agent_of_the_fleet(file: Path) -> None:
    file.write_text(WHOLE.replace('["mine"]', '["mine"]\nroles = { writer = "small", mender = "critic" }'))

    assert roles_by_agent(file, ("small", "critic")) == {"small": {"writer": "small", "mender": "critic"}}
    assert read_programs(file, ("small", "critic")).agents == {"small", "critic"}


@pytest.mark.parametrize(("more", "untrained"), [("", set()), ('\ntrained = ["writer"]', {"critic"})])
def test_one_role_alone_may_be_trained(file: Path, more: str, untrained: set[str]) -> None:
    roles = '\nroles = { writer = "small", mender = "critic" }'
    file.write_text(WHOLE.replace('["mine"]', f'["mine"]{roles}{more}'))

    assert untrained_agents(file, ("small", "critic")) == untrained
    assert untrained_agents(None, ("small",)) == frozenset()


@pytest.mark.parametrize(
    ("roles", "sentence"),
    [
        ('{ writer = "critic", mender = "small" }', "the first role is the agent small itself, not critic"),
        ('{ writer = "small", a = "critic", b = "critic" }', "agent critic has a role in agents.small already"),
        ('{ writer = "small", mender = "other" }', "agent other has programs already"),
        ('{ writer = "small" }\ntrained = ["mender"]', "agents.small.trained: mender is none of its roles"),
        ('{ writer = "small", mender = "nobody" }', "agents.nobody: not one of the fleet's agents"),
    ],
)
def test_a_role_that_no_agent_can_play_is_refused_with_the_reason(file: Path, roles: str, sentence: str) -> None:
    other = '[agents.other]\nprograms = ["mine"]\n'
    file.write_text(other + WHOLE.replace('["mine"]', f'["mine"]\nroles = {roles}'))

    with pytest.raises(SettingsError, match=sentence):
        roles_by_agent(file, ("small", "critic", "other"))


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ("[agents.small]", "[agents.big]", r"agents.big: not one of the fleet's agents \(RATCHET_AGENTS=small\)"),
        ('["mine"]', "[]", r"agents.small.programs: Tuple should have at least 1 item"),
        ('["mine"]', '["yours"]', r"there is no program 'yours'; there are aider, .*mine, "),
        ("seconds = 5", "seconds = 0", r"programs.mine.limits.seconds: Input should be greater than 0"),
        ("seconds = 5", "secnds = 5", r"programs.mine.limits.secnds: Extra inputs are not permitted"),
        ('task = "file"', 'task = "post"', r"programs.mine.task: Input should be 'stdin', 'argument'"),
        ('task = "file"', 'task = "stdin"', r"programs.mine: Value error, task is 'stdin', but \{input\} stands there"),
        ("--in={input}", "--in", r"task is 'file', but \{input\} stands nowhere"),
        ("data =", 'tool_policy.a.file_read = "deny"\ndata =', "programs.mine: Value error, .* needs tools = true"),
        (
            "data =",
            'tools = true\ntool_policy.a.file_writ = "deny"\ndata =',
            r"tool_policy.a: there is no tool 'file_wr",
        ),
        (
            "data =",
            'tools = true\ntool_policy.a.file_read = "ask"\ndata =',
            r"tool_policy.a.file_read: Input should be",
        ),
        ('"out/answer.txt"', '"../x"', r"programs.mine.answer_file: Value error, '../x' is no path of a file"),
        ("MODE =", "OPENAI_API_KEY =", r"programs.mine.environment: Value error, OPENAI_API_KEY can't be set"),
        ('"/agent" =', '"/usr/x" =', r"programs.mine.binds: Value error, '/usr/x' can't be given to a job"),
        ('"/etc/agent.toml" =', '"agent.toml" =', r"programs.mine.data: .* write an absolute path"),
        ('= "code"', '= "nowhere"', r"programs.mine.binds./agent: .*nowhere is no folder here"),
        ("[agents.small]", "[agents.small", r"programs.toml is no TOML"),
        ("data =", 'coroutine = "main:agent"\ndata =', r"programs.mine: Value error, it has either a command or a co"),
        ("data =", 'coroutine = "main.agent"\ndata =', r"programs.mine.coroutine: String should match pattern"),
    ],
)
def test_what_can_not_be_used_is_named_with_file_program_and_field(
    before: str, after: str, sentence: str, file: Path
) -> None:
    assert before in WHOLE
    file.write_text(WHOLE.replace(before, after))

    with pytest.raises(SettingsError, match=sentence) as refused:
        read_programs(file, ("small",))
    assert str(file) in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"RATCHET_PROGRAMS: {tmp_path / 'x'} can't be read")):
        read_programs(tmp_path / "x", ("small",))


def test_an_input_that_can_not_be_given_is_told(file: Path) -> None:
    long, nul = "x" * 200_000, "a\0b"
    argument = Program(command=("it", "{input}"), task="argument")
    variable = Program(command=("it",), task="environment")

    for program in (argument, variable):
        assert "too long" in (program.unfit(long) or "") and "NUL" in (program.unfit(nul) or "")
    assert Program(command=("it",)).unfit(long) is None
    assert read_programs(file, ("small",))["mine"].unfit(long) is None


def test_what_comes_with_ratchet_is_declared_as_anybodys(tmp_path: Path) -> None:
    assert Program.model_validate(shell()).limits.calls == 32
    assert read_programs(REPOSITORY / "examples/own-program/programs.toml", ("small",)).names == ("checker",)
