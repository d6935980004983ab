"""The hidden cases of a task, as its criteria hold them: JSON with a single key, `tests`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ratchet.sandbox.job import SandboxError, require_inside
from ratchet.sandbox.limits import MIB, Limits
from ratchet.service.errors import ScorerError, one_line
from services.scorer.matching.json_values import NoJson, read

Language = Literal["python", "javascript", "go", "rust"]
FILES: dict[Language, str] = {
    "python": "solution.py",
    "javascript": "solution.js",
    "go": "solution.go",
    "rust": "solution.rs",
}
MAX_CASES = 1000
NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class RunLimits(_Part):
    """Of each case; a build has at least two minutes and a gigabyte."""

    wall_s: Annotated[float, Field(gt=0, le=300, strict=False)] = 10.0
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
    """Of a command: its stdout but for white space at the end."""
    tolerance: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """By how much a number may differ where a float is expected."""

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


class Plan(_Part):
    """All that an answer to this task is judged by."""

    language: Language = "python"
    file: str = ""
    """What the answer is, in the workspace; solution.py and its siblings where it is not given."""
    cases: Annotated[list[Case], Field(min_length=1, max_length=MAX_CASES)]
    files: dict[str, str] = {}
    """Beside the answer, and in the place of files of the same name that the answer brings."""
    limits: RunLimits = RunLimits()

    @model_validator(mode="after")
    def _usable(self) -> Self:
        for path in (*self.files, *([self.file] if self.file else [])):
            try:
                require_inside(path)
            except SandboxError as error:
                raise ValueError(str(error)) from None
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
