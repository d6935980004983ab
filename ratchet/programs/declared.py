"""Programs that answer an agent's tasks, as a file declares them (RATCHET_PROGRAMS), and what each is given.

    [agents.small]
    programs = ["mine", "shell"]

    [programs.mine]
    command = ["python3", "/agent/agent.py"]
    binds = { "/agent" = "." }

A program that asks several models has roles, each of which is an agent of the fleet with adapters of its own:

    [agents.small]
    programs = ["pair"]
    roles = { generator = "small", reviewer = "critic" }

The first role is the agent itself, whose tasks these are. A program names a role as the model of a call. With
`trained = ["generator"]` beside them no training is asked for the others.

A program that is not in the file is looked for among the entry points `ratchet.programs`: each is a function without
arguments that returns the declaration, a `Program` or a mapping of its fields. Nothing is started here, and nothing
installed: what a program requires has to be there (environments.py).
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ratchet.programs.environments import Environments
from ratchet.programs.images.installing import Image
from ratchet.programs.shipped import inside
from ratchet.programs.task_input import INPUT, as_text, unfit_argument
from ratchet.service.entry_points import EntryPoints
from ratchet.service.errors import SettingsError
from schemas.messages.base import AgentId, Identifier
from schemas.messages.task import Constraints, Prompt
from workbench.sandbox.bubblewrap import PATH
from workbench.sandbox.job import WORKSPACE, SandboxError, require_absolute, require_inside, require_mountable
from workbench.sandbox.limits import MIB, Limits
from workbench.tools.names import unknown_tool

INSTALLED = EntryPoints("ratchet.programs", "program", SettingsError)
TASK_FILE = "/task/input"
TASK_VARIABLE = "RATCHET_INPUT"
WORKSPACE_PLACE = "{workspace}"
ENVIRONMENT = "/environment"
"""The folder of what a program requires: a virtual environment, whose `python` is the first in its PATH."""
DEFAULT_ENVIRONMENTS = Path(".ratchet/programs")
OURS = ("RATCHET_", "OPENAI_", "ANTHROPIC_")
"""Variables that begin so are the runner's to set."""


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ProgramLimits(_Declared):
    """Limits of one rollout. The deadline of its task may end it sooner."""

    seconds: float = Field(600.0, gt=0, description="From its start to its end.")
    cpu_seconds: float | None = Field(None, gt=0, description="Of the processor; as many as `seconds` if absent.")
    tokens: int = Field(65_536, ge=1, description="That the model samples for it, in all calls.")
    calls: int = Field(256, ge=1, description="Of the model.")
    output_kb: int = Field(1024, ge=1, description="That it prints, errors included.")
    memory_mb: int = Field(1024, ge=16, description="Of all its processes.")
    cpus: float = Field(
        0.0,
        ge=0,
        exclude_if=lambda cores: not cores,
        description="Cores that it has to itself: beside it no more rollouts begin than the others hold. 0: it shares.",
    )
    processes: int = Field(128, ge=4, description="Threads are counted.")
    disk_mb: int = Field(256, ge=1, description="Of its workspace; /tmp and shared memory get as much each.")

    def in_sandbox(self, seconds: float) -> Limits:
        """Return the limits of the sandbox, for a rollout that has so many seconds."""
        return Limits(
            wall_s=max(seconds, 0.001),
            cpu_s=self.cpu_seconds or self.seconds,
            memory_bytes=self.memory_mb * MIB,
            processes=self.processes,
            output_bytes=self.output_kb * 1024,
            file_bytes=self.disk_mb * MIB,
            workspace_bytes=self.disk_mb * MIB,
        )


class Program(_Declared):
    """Program that is run, once for each sample, in a sandbox with a way to the model and none to anything else."""

    command: tuple[str, ...] = Field(
        (), description="The program and its arguments; {workspace} stands for its folder."
    )
    coroutine: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="In place of a command: `module:function`, found in what it binds or requires. The function is "
        "awaited with the task's input, the base URL and the key, and what it returns is the answer.",
    )
    image: Image | None = Field(
        None,
        description="The root file system that it sees in place of this machine's /usr. Without a command, what the "
        "image says is run; its variables and its working directory hold where the declaration says none.",
    )
    directory: str | None = Field(
        None, description="Where it begins; the working directory of its image, else /workspace, if absent."
    )
    requirements: tuple[str, ...] = Field(
        (),
        description="What pip installs for it (`ratchet programs install`); its `python` is then that environment's.",
    )
    tools: bool = Field(
        False, description="It sees the tools of Ratchet: `/ratchet/run.py serve` serves them over MCP on stdio."
    )
    tool_policy: dict[str, dict[str, Literal["allow", "deny"]]] = Field(
        default_factory=dict,
        exclude_if=lambda policy: not policy,
        description="By role, or `*` for all, whether it may call a tool of Ratchet, by its name, or `*` for all.",
    )
    task: Literal["stdin", "argument", "file", "environment"] = Field(
        "stdin",
        description="How it is given the task's input: on stdin; where {input} stands in the command; in a file whose "
        "path stands there; in the variable RATCHET_INPUT.",
    )
    answer_file: str | None = Field(
        None, description="The file of its workspace that its answer is in; what it prints, if absent."
    )
    environment: dict[str, str] = Field(default_factory=dict, description="Beside PATH, HOME and what finds the model.")
    binds: dict[str, Path] = Field(
        default_factory=dict,
        description="Folders of this machine that it sees, read-only, by the path it sees them at: a virtual "
        "environment, a folder with the program. Relative ones are relative to the file.",
    )
    data: dict[str, str] = Field(default_factory=dict, description="Texts that it sees as files, by their path.")
    limits: ProgramLimits = ProgramLimits()
    approval: Literal["before-finish", "on-change", "never"] = Field(
        "never",
        description="Whether a person has to approve a result before it is scored: each, or those that changed the "
        "workspace. A program may ask people besides.",
    )

    @field_validator("environment")
    @classmethod
    def _leaves_ours_alone(cls, environment: dict[str, str]) -> dict[str, str]:
        if taken := sorted(name for name in environment if name.startswith(OURS) or "=" in name or not name):
            raise ValueError(f"{', '.join(taken)} can't be set: the runner sets what begins with {', '.join(OURS)}")
        return environment

    @field_validator("binds", "data")
    @classmethod
    def _can_be_put_there(cls, places: dict[str, Any]) -> dict[str, Any]:
        for path in places:
            _as_value_error(require_mountable, path)
        return places

    @field_validator("answer_file")
    @classmethod
    def _lies_in_the_workspace(cls, path: str | None) -> str | None:
        if path is not None:
            _as_value_error(require_inside, path)
        return path

    @field_validator("directory")
    @classmethod
    def _is_a_place(cls, path: str | None) -> str | None:
        if path is not None:
            _as_value_error(require_absolute, path)
        return path

    @model_validator(mode="after")
    def _has_a_tool_policy_that_can_be_held(self) -> Self:
        if self.tool_policy and not self.tools:
            raise ValueError("tool_policy is that of the tools of Ratchet: it needs tools = true")
        if self.tool_policy and inside.TOOLS_POLICY in self.data:
            raise ValueError(f"it has a tool_policy, and another one in its data, {inside.TOOLS_POLICY}: name one")
        for role, table in self.tool_policy.items():
            if strange := unknown_tool(name for name in table if name != inside.ALL):
                raise ValueError(f"tool_policy.{role}: {strange}")
        return self

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        if self.command and self.coroutine:
            raise ValueError("it has either a command or a coroutine")
        if self.image is None:
            if not self.command and not self.coroutine:
                raise ValueError("it has neither a command nor a coroutine nor an image")
        elif self.coroutine or self.requirements or self.tools:
            raise ValueError(
                "a coroutine, requirements and tools need the Python of this machine, not that of an image"
            )
        return self

    @model_validator(mode="after")
    def _has_a_place_for_the_input(self) -> Self:
        placed = any(INPUT in part for part in self.command)
        if placed != (self.task in ("argument", "file")):
            raise ValueError(
                f"task is {self.task!r}, but {INPUT} stands {'there' if placed else 'nowhere'} in the command: it "
                'stands there for `task = "argument"` and `task = "file"` alone'
            )
        return self

    def relative_to(self, folder: Path) -> Self:
        binds = {at: (folder / place).absolute() for at, place in self.binds.items()}
        return self.model_copy(update={"binds": binds, "image": self.image and self.image.relative_to(folder)})

    def environments(self, name: str) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Those it needs, as name and requirements, by the path it sees them at."""
        own = {ENVIRONMENT: (name, self.requirements)} if self.requirements else {}
        return own | ({inside.TOOLS_ENVIRONMENT: (inside.TOOLS_NAME, inside.TOOLS_REQUIRE)} if self.tools else {})

    def with_requirements(self, name: str, environments: Environments, typed: str) -> Self:
        """With all that it says it needs among what it sees, and a command in any case; an image is a folder then.
        Raises SettingsError, with what is to be `typed`, where something is not installed."""
        if self.image is not None:
            return self._in_its_image(name, self.image, environments, typed)
        binds = {at: environments.require(*one, typed) for at, one in self.environments(name).items()} | self.binds
        data, command, environment = dict(self.data), self.command, dict(self.environment)
        if self.requirements:
            environment["PATH"] = f"{ENVIRONMENT}/bin:{environment.get('PATH', PATH)}"
        if self.tools:
            binds, data = inside.tools_packages() | binds, inside.tools_files(self.tool_policy) | data
        if self.coroutine:
            data[inside.LAUNCHER] = inside.launcher()
            command = ("python3", inside.LAUNCHER, self.coroutine, *self.binds)
        found = {"binds": binds, "data": data, "command": command, "environment": environment}
        return self.model_copy(update=found | {"coroutine": None})

    def _in_its_image(self, name: str, image: Image, environments: Environments, typed: str) -> Self:
        there = environments.images.require(image, typed)
        said = there.config
        command = self.command or said.command
        if not command:
            raise SettingsError(f"program {name}: its {image.named} says nothing to be run: give it a command")
        own = {variable: value for variable, value in said.environment.items() if not variable.startswith(OURS)}
        return self.model_copy(
            update={
                "image": Image(folder=there.root),
                "command": command,
                "environment": own | self.environment,
                "directory": self.directory or said.directory,
            }
        )

    def within(self, constraints: Constraints | None) -> Self:
        """Return the program with limits and tools that are no more than a task allows; its own where those are less.

        It is the one that is run: with its requirements.
        """
        if constraints is None:
            return self
        asked = constraints.model_dump(include={"calls", "tokens", "seconds"}, exclude_none=True)
        limits = {name: min(most, getattr(self.limits, name)) for name, most in asked.items()}
        data = dict(self.data)
        if self.tools and constraints.tools is not None:
            data[inside.TOOLS_POLICY] = inside.with_task_tools(data[inside.TOOLS_POLICY], constraints.tools)
        return self.model_copy(update={"limits": self.limits.model_copy(update=limits), "data": data})

    def undeclared_tool(self, constraints: Constraints | None) -> str | None:
        """Return why a task's constraints name a tool that the declaration does not have; None where they don't."""
        tools = constraints and constraints.tools
        if not tools:
            return None
        if not self.tools:
            return "constraints.tools: it has none of the tools of Ratchet (tools = true in its declaration)"
        of_all = self.tool_policy.get(inside.ALL, {})
        tables = [{**of_all, **own} for own in (self.tool_policy or {inside.ALL: {}}).values()]
        for name in tools:
            if all(table.get(name, table.get(inside.ALL)) == "deny" for table in tables):
                return f"constraints.tools: {name} is not declared: its tool_policy denies it"
        return unknown_tool(tools)

    def unfit(self, prompt: Prompt) -> str | None:
        """Say why this input can't be given to it; None where it can."""
        if self.task == "environment":
            return unfit_argument((INPUT,), prompt)
        return unfit_argument(self.command, prompt) if self.task == "argument" else None

    def command_for(self, prompt: Prompt) -> tuple[str, ...]:
        shown = TASK_FILE if self.task == "file" else as_text(prompt)
        return tuple(part.replace(WORKSPACE_PLACE, WORKSPACE).replace(INPUT, shown) for part in self.command)


def _as_value_error(check: Any, path: str) -> None:
    try:
        check(path)
    except SandboxError as error:
        raise ValueError(str(error)) from None


class _Agent(_Declared):
    programs: tuple[Identifier, ...] = Field(min_length=1)
    roles: dict[Identifier, AgentId] = Field(default_factory=dict)
    trained: tuple[Identifier, ...] | None = Field(None, min_length=1)


class _File(_Declared):
    agents: dict[AgentId, _Agent] = Field(min_length=1)
    programs: dict[Identifier, Program] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _each_agent_plays_one_role(self) -> Self:
        """Check that each agent has one team at most: its experiments are judged by that team's outcome."""
        played: dict[str, str] = {}
        for name, agent in self.agents.items():
            if strange := [role for role in agent.trained or () if role not in agent.roles]:
                raise ValueError(f"agents.{name}.trained: {strange[0]} is none of its roles")
            if not agent.roles:
                continue
            first, *others = agent.roles.values()
            if first != name:
                raise ValueError(f"agents.{name}.roles: the first role is the agent {name} itself, not {first}")
            for partner in others:
                if partner in self.agents or partner in played:
                    other = "programs" if partner in self.agents else f"a role in agents.{played[partner]}"
                    raise ValueError(f"agents.{name}.roles: agent {partner} has {other} already: name another agent")
                played[partner] = name
        return self


class Programs:
    """`by_agent`: the names of its programs, in the order in which the samples of a group are dealt to them. `agents`:
    those whose models are asked, with the agents that play roles."""

    def __init__(
        self,
        by_agent: Mapping[str, tuple[str, ...]],
        programs: Mapping[str, Program],
        roles: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        self.by_agent = dict(by_agent)
        self.agents = frozenset([*by_agent, *(agent for played in roles.values() for agent in played.values())])
        self._programs = dict(programs)

    def __getitem__(self, name: str) -> Program:
        """Raises KeyError for a program of none of the agents."""
        return self._programs[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._programs)


NONE = Programs({}, {})


def agents_with_programs(file: Path | None, agents: tuple[str, ...]) -> frozenset[str]:
    """Those of the fleet's agents that a runner answers for. Raises SettingsError. Loads no program."""
    return frozenset(_read(file, agents).agents) if file else frozenset()


def roles_by_agent(file: Path | None, agents: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return the agent that plays each role, for the agents whose programs have roles. Raises SettingsError. Loads no
    program."""
    read = _read(file, agents).agents if file else {}
    return {name: dict(agent.roles) for name, agent in read.items() if agent.roles}


def untrained_agents(file: Path | None, agents: tuple[str, ...]) -> frozenset[str]:
    """Return the agents whose roles no training is asked for (`trained` names the others). Raises SettingsError."""
    read = _read(file, agents).agents.values() if file else ()
    return frozenset(
        player
        for agent in read
        if agent.trained is not None
        for role, player in agent.roles.items()
        if role not in agent.trained
    )


def read_programs(file: Path | None, agents: tuple[str, ...], environments: Path = DEFAULT_ENVIRONMENTS) -> Programs:
    """Those of the fleet's `agents`; none without a file. Raises SettingsError that names file, program and field, or
    what to type where it is not in `environments` what a program requires."""
    if file is None:
        return NONE
    read = _read(file, agents)
    by_agent = {agent: declared.programs for agent, declared in read.agents.items()}
    declared = _programs_of_file(file, read)
    for name, program in declared.items():
        _require_there(file, name, program)
    where = Environments(environments)
    typed = {name: f"ratchet programs install {name}{f' --file {file}' * (name in read.programs)}" for name in declared}
    roles = {agent: one.roles for agent, one in read.agents.items()}
    return Programs(
        by_agent, {name: one.with_requirements(name, where, typed[name]) for name, one in declared.items()}, roles
    )


def declared_programs(file: Path | None) -> dict[str, Program]:
    """Return programs by name, installed or not: those that agents of the file have, or those that are
    installed themselves. Raises SettingsError."""
    if file is None:
        return {name: _installed_program(name, "what is installed") for name in sorted(INSTALLED.names)}
    return _programs_of_file(file, _read(file, None))


def _programs_of_file(file: Path, read: _File) -> dict[str, Program]:
    named = dict.fromkeys(name for agent in read.agents.values() for name in agent.programs)
    programs = {name: read.programs.get(name) or _installed_program(name, file, read.programs) for name in named}
    return {name: program.relative_to(file.absolute().parent) for name, program in programs.items()}


def _read(file: Path, agents: tuple[str, ...] | None) -> _File:
    """`agents`: the fleet's; any at all if None."""
    try:
        read = _File.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"RATCHET_PROGRAMS: {file} can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file} is no TOML: {error}") from None
    except ValidationError as error:
        raise SettingsError(f"{file}: {faults(error)}") from None
    named = {*read.agents, *(one for agent in read.agents.values() for one in agent.roles.values())}
    if agents is not None and (strange := sorted(named - set(agents))):
        raise SettingsError(
            f"{file}: agents.{strange[0]}: not one of the fleet's agents (RATCHET_AGENTS={','.join(agents)})"
        )
    return read


def faults(error: ValidationError) -> str:
    """Return what is wrong with a declaration, each field with its fault."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'the whole'}: {one['msg']}" for one in faults[:5])


def _installed_program(name: str, file: Path | str, beside: Collection[str] = ()) -> Program:
    if name not in (installed := INSTALLED.names):
        known = sorted({*beside, *installed})
        raise SettingsError(f"{file}: there is no program {name!r}; there are {', '.join(known) or 'none'}")
    try:
        declared = INSTALLED.load(name)()
        return declared if isinstance(declared, Program) else Program.model_validate(declared)
    except ValidationError as error:
        raise SettingsError(f"the installed program {name}: {faults(error)}") from None
    except (ImportError, AttributeError, TypeError) as error:
        raise SettingsError(f"the installed program {name} can't be loaded: {error}") from error


def _require_there(file: Path, name: str, program: Program) -> None:
    for at, place in program.binds.items():
        if not place.is_dir():
            raise SettingsError(f"{file}: programs.{name}.binds.{at}: {place} is no folder here")
