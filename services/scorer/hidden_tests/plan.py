"""The hidden cases of a task, as its criteria hold them: JSON with a single key, `tests`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ratchet.service.errors import ScorerError, one_line
from schemas.messages.workspace import SeenAt
from services.scorer.matching.json_values import NoJson, read
from workbench.sandbox.job import SandboxError, require_inside
from workbench.sandbox.limits import MIB, Limits

Language = Literal["python", "javascript", "go", "rust"]
FILES: dict[Language, str] = {
    "python": "solution.py",
    "javascript": "solution.js",
    "go": "solution.go",
    "rust": "solution.rs",
}
MAX_CASES = 1000
MAX_CONTROLS = 32
TEST_SCRIPT = "test.sh"
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


def _require_inside(paths: Iterable[str]) -> None:
    """Raises ValueError."""
    for path in paths:
        try:
            require_inside(path)
        except SandboxError as error:
            raise ValueError(str(error)) from None


class RunLimits(_Part):
    """The limits of each case; a build has at least two minutes and a gigabyte."""

    wall_s: Annotated[float, Field(gt=0, le=3600, strict=False)] = 10.0
    memory_mib: Annotated[int, Field(ge=16, le=16_384)] = 512
    processes: Annotated[int, Field(ge=1, le=1024)] = 64

    def as_limits(self) -> Limits:
        return Limits(
            wall_s=self.wall_s, cpu_s=self.wall_s, memory_bytes=self.memory_mib * MIB, processes=self.processes
        )


class Case(_Part):
    """A function that is called, or a command that is run; and what has to come out."""

    name: str | None = None
    function: str | None = None
    arguments: list[Any] = []
    command: list[str] | None = None
    stdin: str = ""
    expected: Any = None
    """Compared in value and type."""
    expected_text: str | None = None
    """A command's expected stdout, but for white space at the end."""
    tolerance: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """The difference that a number may have where a float is expected."""
    keeps: bool = False
    """True for a case that worked before and has to work still: it earns nothing, and without it nothing is earned."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.function is None) == (self.command is None):
            raise ValueError("a case has a function or a command, one of the two")
        if self.function is not None and not NAME.fullmatch(self.function):
            raise ValueError(f"{self.function!r} is no name of a function")
        if self.command is not None and not self.command:
            raise ValueError("the command is empty")
        if ("expected" in self.model_fields_set) == (self.expected_text is not None):
            raise ValueError("a case has `expected` or `expected_text`, one of the two")
        if self.function is not None and self.expected_text is not None:
            raise ValueError("`expected_text` is for commands")
        return self


TEST = "{test}"


class Suite(_Part):
    """Tests that run with what they test, in the sandbox, each a process of its own that passes if it exits with 0.

    Whatever runs beside a test can make it pass. So the same tests are run with `control` in the place of their files,
    where every expectation is wrong: what passes those, too, does not go by what is right. Without it a suite can only
    take away. What takes some sum of the files for its verdict, whatever they say, is right about them and one control
    by chance, once in four; with each further control half as often.
    """

    command: Annotated[list[str], Field(min_length=1)]
    """The command of one test, whose name stands where it says {test}."""
    build: list[str] | None = None
    """Run before them with the suite's files, and with the control, several times each; what it makes stays."""
    tests: Annotated[list[str], Field(max_length=MAX_CASES)] = []
    """That have to pass, and earn all or nothing."""
    keeps: Annotated[list[str], Field(max_length=MAX_CASES)] = []
    """That passed before and have to pass still."""
    files: dict[str, str] = {}
    """The suite's own, put over whatever the answer made of them."""
    control: dict[str, str] | Annotated[list[dict[str, str]], Field(min_length=1, max_length=MAX_CONTROLS)] = {}
    """The same, with each expectation of `tests` made wrong; or several such, each wrong in its own way."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not any(TEST in word for word in self.command):
            raise ValueError(f"no word of the suite's command holds {TEST}")
        if not self.tests and not self.keeps:
            raise ValueError("the suite names no tests")
        if self.tests and not all(self.controls):
            raise ValueError("tests that earn something need a control: the same files with every expectation wrong")
        if unknown := {path for one in self.controls for path in one} - self.files.keys():
            raise ValueError(f"{min(unknown)!r} of the control is no file of the suite")
        return self

    @property
    def controls(self) -> list[dict[str, str]]:
        """One at least, which is empty where none is given."""
        return self.control if isinstance(self.control, list) else [self.control]

    def command_of(self, test: str) -> list[str]:
        return [word.replace(TEST, test) for word in self.command]


class Script(_Part):
    """A script that judges the workspace as the answer left it, in the form of Harbor's tests: it finds its `files` in
    /tests and writes what the answer is worth to /logs/verifier/reward.txt, or reward.json.

    It runs beside what it judges: an answer that writes there after it did decides for itself.
    """

    files: Annotated[dict[str, str], Field(min_length=1)]
    """The texts by their path below /tests. One is test.sh."""
    environment: dict[str, str] = {}
    seen_at: SeenAt | None = None
    """Another path at which it finds the workspace."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if TEST_SCRIPT not in self.files:
            raise ValueError(f"the script's files hold no {TEST_SCRIPT}")
        _require_inside(self.files)
        return self


class Plan(_Part):
    """All that an answer to this task is judged by."""

    language: Language = "python"
    file: str = ""
    """The answer's file in the workspace; solution.py and its siblings where it is not given."""
    cases: Annotated[list[Case], Field(max_length=MAX_CASES)] = []
    suite: Suite | None = None
    script: Script | None = None
    """It stands in the place of cases and a suite."""
    build: list[str] | None = None
    """Run once in the workspace before the rest; what it makes stays for them."""
    restore: list[str] = []
    """Files and folders of the workspace that are put back as they were, whatever the answer made of them."""
    files: dict[str, str] = {}
    """Files beside the answer, and in the place of files of the same name that the answer brings."""
    limits: RunLimits = RunLimits()

    @model_validator(mode="after")
    def _usable(self) -> Self:
        if self.script is not None and (self.cases or self.suite):
            raise ValueError("a script judges alone: without cases and without a suite")
        if self.script is None and all(case.keeps for case in self.cases) and not (self.suite and self.suite.tests):
            raise ValueError("nothing is earned: there are no cases, and no tests of a suite, but those that keep")
        own = (
            *self.files,
            *(path.removesuffix("/") for path in self.restore),
            *(self.suite.files if self.suite else ()),
        )
        _require_inside((*own, *([self.file] if self.file else [])))
        if self.language == "rust" and any(case.function for case in self.cases):
            raise ValueError("a function in Rust can't be called by its name: give it a command, such as ./program")
        return self

    @property
    def place(self) -> str:
        return self.file or FILES[self.language]

    def case_name(self, number: int) -> str:
        return self.cases[number].name or f"case {number + 1}"


class _Criteria(_Part):
    tests: Plan


def plan_of(criteria: str | None) -> Plan:
    """Raises ScorerError for a task that has no cases, or has them wrong."""
    if criteria is None or not criteria.lstrip().startswith("{"):
        raise ScorerError('the task has no hidden cases: its criteria are to be JSON, {"tests": {"cases": [...]}}')
    try:
        return _Criteria.model_validate(read(criteria)).tests
    except NoJson as error:
        raise ScorerError(f"the criteria can't be read: {error}") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise ScorerError(one_line(f"the criteria are no hidden cases: {place}: {fault['msg']}")) from None
