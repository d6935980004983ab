"""Harbor task folders read as tasks: instruction.md, task.toml, environment/, tests/, solution/.

https://www.harborframework.com/docs/tasks says what is in them. Leaves out what needs a container engine or a network:
such a folder is refused, with the file and the key at fault. A task's own solution, run in a sandbox, is its oracle.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ratchet.service.errors import FAULTS
from schemas.messages.task import Task
from schemas.messages.workspace import SEEN_AT, SeenAt
from services.cli.terminal import CommandError, UsageError
from workbench.sandbox.job import WORKSPACE, Job
from workbench.sandbox.limits import MIB, Limits
from workbench.sandbox.sandbox import Sandbox
from workbench.sandbox.settings import SandboxSettings
from workbench.workspaces.settings import WorkspaceSettings
from workbench.workspaces.workspaces import Workspaces

Seconds = Annotated[float, Field(gt=0, le=3600)]
Nothing = Annotated[list[Any], Field(max_length=0)]
MOST_TESTS = 90_000
"""Characters of the tests: a scorer reads no more of a task's criteria than 100,000."""
LEVELS = ("easy", "medium", "hard")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Metadata(_Part):
    difficulty: str | None = None
    category: str | None = None


class _Verifier(_Part):
    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    environment_mode: Literal["shared"] = "shared"
    collect: Nothing = []


class _Agent(_Part):
    timeout_sec: Seconds | None = None


class _Environment(_Part):
    memory_mb: Annotated[int, Field(ge=16, le=16_384)] = 2048
    gpus: Annotated[int, Field(le=0)] = 0
    os: Literal["linux"] = "linux"
    env: Annotated[dict[str, str], Field(max_length=0)] = {}
    mcp_servers: Nothing = []
    workdir: SeenAt | None = None


class _Settings(_Part):
    """The part of task.toml that is read. Keys that are not known are ignored, as Harbor ignores them."""

    metadata: _Metadata = _Metadata()
    verifier: _Verifier = _Verifier()
    agent: _Agent = _Agent()
    environment: _Environment = _Environment()
    steps: Nothing = []


@dataclass(frozen=True, slots=True)
class HarborTask:
    """`line`: the task as a line of a set has it. `solution`: its files by their path, None where there is no
    solve.sh."""

    name: str
    line: Mapping[str, Any]
    solution: Mapping[str, str] | None


def read_tasks(folder: Path) -> list[HarborTask]:
    """Read a task folder, or a folder of them. Raises UsageError, naming the file and the key at fault."""
    if (folder / "task.toml").is_file():
        return [read_task(folder)]
    found = sorted(path.parent for path in folder.glob("*/task.toml"))
    if not found:
        raise UsageError(f"{folder} is no Harbor task, and holds none: there is no task.toml")
    return [read_task(one) for one in found]


def read_task(folder: Path) -> HarborTask:
    """Raises UsageError, naming the file and the key at fault."""
    settings = _settings(folder / "task.toml")
    instruction = _text(folder / "instruction.md").strip()
    if not instruction:
        raise UsageError(f"{folder / 'instruction.md'} is empty")
    tests, context = _files(folder / "tests"), _files(folder / "environment")
    if "test.sh" not in tests:
        raise UsageError(f"{folder / 'tests'} holds no test.sh")
    if sum(map(len, tests.values())) > MOST_TESTS:
        raise UsageError(f"{folder / 'tests'} holds more than {MOST_TESTS:,} characters")
    for name in ("environment/docker-compose.yaml", "tests/Dockerfile", "tests/docker-compose.yaml"):
        if (folder / name).exists():
            raise UsageError(f"{folder / name} needs a container engine, which this fleet runs no task with")
    try:
        image = read_dockerfile(_text(folder / "environment" / "Dockerfile"), context, settings.environment.workdir)
    except (NeedsEngine, ValueError) as error:
        raise UsageError(
            f"{folder / 'environment/Dockerfile'} needs a container engine, which this fleet runs no task with: {error}"
        ) from None
    script = {"files": tests, "environment": settings.verifier.env, "seen_at": image.directory}
    limits = {"wall_s": settings.verifier.timeout_sec, "memory_mib": settings.environment.memory_mb, "processes": 256}
    level, solution, agent_s = settings.metadata.difficulty, _files(folder / "solution"), settings.agent.timeout_sec
    line = {
        "input": instruction,
        "workspace": {"files": image.files, "seen_at": image.directory},
        "criteria": json.dumps({"tests": {"language": image.language, "script": script, "limits": limits}}),
        "constraints": {"seconds": agent_s} if agent_s else None,
        "family": settings.metadata.category or folder.name,
        "language": image.language,
        "level": level if level in LEVELS else None,
    }
    return HarborTask(folder.name, line, solution if "solve.sh" in solution else None)


def _settings(path: Path) -> _Settings:
    try:
        found = _Settings.model_validate(tomllib.loads(_text(path)))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise UsageError(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    if templates := [name for name, value in found.verifier.env.items() if "${" in value]:
        raise UsageError(f"{path}: verifier.env.{templates[0]}: no variable of this machine enters a sandbox")
    return found


def _files(folder: Path) -> dict[str, str]:
    """Return the files below the folder, but for a Dockerfile at its top; none where it is missing."""
    found = sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    texts = {str(path.relative_to(folder)): _text(path) for path in found}
    texts.pop("Dockerfile", None)
    return texts


def _text(path: Path) -> str:
    if path.is_symlink():
        raise UsageError(f"{path} is a link")
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is no text: only texts travel in a task") from None


LIMITS = Limits(wall_s=600.0, cpu_s=600.0, memory_bytes=2048 * MIB, processes=256)


def solved_task(harbor: HarborTask) -> Task:
    """Return the task with what its solution changes as its reference; without one where there is no solution.

    Raises CommandError where it can't be run, as where the sandbox does not hold.
    """
    task = Task.model_validate({"task_id": harbor.name, **harbor.line})
    if harbor.solution is None:
        return task
    try:
        return task.model_copy(update={"reference": asyncio.run(_patch(task, harbor))})
    except FAULTS as error:
        raise CommandError(f"the solution of {harbor.name} can't be run: {error}") from error


async def _patch(task: Task, harbor: HarborTask) -> str:
    assert task.workspace is not None and harbor.solution is not None
    sandbox = await asyncio.to_thread(Sandbox.open, SandboxSettings())
    async with Workspaces(WorkspaceSettings(), sandbox) as workspaces:
        before = await workspaces.tree(task.workspace)
        place = task.workspace.seen_at or WORKSPACE
        job = Job(
            ["bash", "/solution/solve.sh"],
            tree=before.files,
            data={f"/solution/{path}": text.encode() for path, text in harbor.solution.items()},
            links={place: WORKSPACE},
            directory=place,
            collect_tree=True,
            limits=LIMITS,
        )
        return (await workspaces.artifact(before, await sandbox.run(job))).patch


BASES = {
    **dict.fromkeys(("alpine", "busybox", "debian", "python", "ubuntu"), "python"),
    "golang": "go",
    "node": "javascript",
    "rust": "rust",
}
"""Images that the machine's own /usr stands in for, and the language whose tools it then needs."""
_CONTINUED = re.compile(r"\\\n")
_IGNORED = ("LABEL", "MAINTAINER", "EXPOSE")
_GLOB = re.compile(r"[*?\[$]")


class NeedsEngine(ValueError):
    """A Dockerfile that only a container engine can build; the message says why."""


@dataclass(frozen=True, slots=True)
class PlainImage:
    """`files`: those of the build context, by their path in the working directory."""

    language: str
    directory: str
    files: Mapping[str, str]


def read_dockerfile(text: str, context: Mapping[str, str], directory: str | None = None) -> PlainImage:
    """Read it. `context`: the files of its folder. `directory` is where work begins, whatever it says. Raises
    NeedsEngine."""
    language, workdir, files = "", "/", dict[str, str]()
    for word, rest in _instructions(text):
        if word == "FROM" and not language:
            language = _language_of(rest)
        elif word == "WORKDIR":
            workdir = posixpath.join(workdir, _plain(rest.strip()))
        elif word == "COPY" or (word == "ADD" and "://" not in rest):
            files |= _read_copy(rest, workdir, context, files)
        elif word not in _IGNORED:
            raise NeedsEngine(f"{word} {rest}")
    if not language:
        raise NeedsEngine("no FROM")
    root = posixpath.normpath(directory or workdir)
    if root == "/":
        raise NeedsEngine("no WORKDIR: the whole image is where work begins")
    if not re.fullmatch(SEEN_AT, root):
        raise NeedsEngine(f"WORKDIR {root}, where a sandbox has files of its own")
    if outside := [path for path in files if not path.startswith(f"{root}/")]:
        raise NeedsEngine(f"{outside[0]} is copied outside of WORKDIR {root}")
    return PlainImage(language, root, {path.removeprefix(f"{root}/"): files[path] for path in files})


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in _CONTINUED.sub(" ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def _language_of(image: str) -> str:
    name = image.split()[0].partition("@")[0].rpartition("/")[2].partition(":")[0]
    if name not in BASES or len(image.split()) > 1:
        raise NeedsEngine(f"FROM {image}; without one there are {', '.join(sorted(BASES))}")
    return BASES[name]


def _read_copy(rest: str, workdir: str, context: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return what a COPY brings, by absolute path."""
    words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    flags = [word for word in words if word.startswith("--")]
    *sources, to = words[len(flags) :] or [""]
    if not sources or any(not flag.startswith(("--chown=", "--chmod=")) for flag in flags):
        raise NeedsEngine(f"COPY {rest}")
    place = posixpath.normpath(posixpath.join(workdir, _plain(to)))
    is_folder = len(sources) > 1 or to.endswith(("/", ".")) or place == posixpath.normpath(workdir)
    is_folder = is_folder or any(path.startswith(f"{place}/") for path in before)
    found: dict[str, str] = {}
    for source in sources:
        path = posixpath.normpath(_plain(source).lstrip("/") or ".")
        inside = "" if path == "." else f"{path}/"
        if path in context:
            found[posixpath.join(place, posixpath.basename(path)) if is_folder else place] = context[path]
        elif below := [one for one in context if one.startswith(inside)]:
            found |= {posixpath.join(place, one.removeprefix(inside)): context[one] for one in below}
        else:
            raise NeedsEngine(f"COPY {source}: there is no such file in environment/")
    return found


def _plain(path: str) -> str:
    if _GLOB.search(path):
        raise NeedsEngine(f"the pattern {path}")
    return path
