"""Scores how what an answer wrote is written: `style`, and `security` for what invites an attack. Python by ruff, other
languages as source_checks.py says.

Only what is new counts: findings in the files that the answer changed, less those that were there. Ruff runs in the
sandbox, for it reads what strangers wrote; it knows no configuration of the workspace's, and no comment that tells it
to look away, and reads what is Python by its content under other names, too, for it can be loaded from there. An
answer in which no tool can find fault gets no score here: the other parts of a sum share its weight.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from ratchet.service.entry_points import to_install
from ratchet.service.errors import ScorerError
from schemas.messages.reward import SampleScore
from services.scorer.ground import OnGround, OwnFault
from services.scorer.hidden_tests.plan import plan_of
from services.scorer.settings import ScorerSettings
from services.scorer.strategies import source_checks
from services.scorer.strategies.hidden_tests import place_of
from services.scorer.strategies.source_checks import PLACE, VERSIONS, Checked, job_of
from services.scorer.strategies.source_checks import findings_in as findings_of
from services.scorer.strategies.strategy import NotApplicable, ScoringRequest, failure
from workbench.sandbox.job import End, Job, Result, SandboxError, TreeFile
from workbench.sandbox.limits import MIB, Limits
from workbench.tools.code import SUFFIXES
from workbench.trees import Tree

REVISION = "5"
RUFF = "tool/ruff"
LIMITS = Limits(wall_s=60, cpu_s=30, output_bytes=16 * MIB, workspace_bytes=256 * MIB, memory_bytes=1024 * MIB)
NOT_EXECUTED = (126, 127)
SHOWN = 3
FEWEST_LINES = 20
ENDINGS = (".py", ".pyi")
PYTHON = re.compile(rb"\b(?:import|def|class|lambda)\b")
"""Signs of a Python program in a file of any other name, if it has no error of syntax."""
NO_PYTHON = "invalid-syntax"
DATA = re.compile(rb'(?:"(?:[^"\\\n]|\\.)*+"|[\s\[\]{}:,0-9eE+.\-]|true|false|null)*+')
"""JSON, or lines of it: to Python it is a program of bare literals."""
Findings = Mapping[tuple[str, int], Counter[str]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding. `by_line`: a finding counts the less, the more was written."""

    rules: str
    ignored: str
    by_line: bool
    others: tuple[Checked, ...]
    """The other languages that are checked for it."""

    def score(self, findings: int, lines: int) -> float:
        """Return a score in (0, 1]. Style: half for a finding in twenty lines.

        Security: half for one, a third for two, however long the text is, for one hole is a hole.
        """
        return 1 / (1 + (FEWEST_LINES * findings / max(lines, FEWEST_LINES) if self.by_line else findings))


STYLE = Kind("E,F,W,N,UP,B,C4,SIM,RET,PIE,PERF", "E501,N999,F401", by_line=True, others=source_checks.STYLE)
SECURITY = Kind("S", "S101", by_line=False, others=source_checks.SECURITY)
"""Ruff's S are bandit's rules; S101 is `assert`, which tests are made of."""


class SourceQuality(OnGround):
    """`build` is a class method of the two below."""

    kind: Kind

    def __init__(self, settings: ScorerSettings, ruff: Path) -> None:
        super().__init__(settings)
        self.revision = f"{REVISION};"
        self._ruff = ruff
        self._program = TreeFile(b"")
        self._others: tuple[Checked, ...] = ()

    @classmethod
    def build(cls, argument: str, settings: ScorerSettings) -> Self:
        if argument:
            raise ScorerError(f"`{cls.name}` takes no argument, but was given {argument!r}")
        found = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
        if found is None:
            raise ScorerError(f"scorer {cls.name!r} needs ruff: {to_install('scorer')}")
        return cls(settings, Path(found))

    async def start(self) -> None:
        await super().start()
        try:
            self._program = TreeFile(self._ruff.read_bytes(), executable=True)
            result = await self._ground.run(Job([RUFF, "--version"], tree={RUFF: self._program}, limits=LIMITS))
        except (OSError, SandboxError) as error:
            raise ScorerError(f"scorer {self.name!r} can't use ruff: {error}") from error
        if not result.succeeded:
            raise ScorerError(f"scorer {self.name!r} can't use ruff in the sandbox: {result.says}")
        self.revision = f"{REVISION};{result.stdout.decode().strip()}"
        await self._find_tools()

    async def _find_tools(self) -> None:
        """Note which other languages the sandbox has the tools for: another version is another scorer."""
        for one in self.kind.others:
            if not one.checks:
                self._others = (*self._others, one)
                continue
            try:
                found = await self._ground.run(Job(VERSIONS[one.language], limits=LIMITS))
            except SandboxError:
                continue
            if found.succeeded:
                self._others = (*self._others, one)
                self.revision += f";{found.stdout.decode(errors='replace').strip()}"

    async def score(self, request: ScoringRequest) -> list[SampleScore]:
        try:
            place = place_of(plan_of(request.criteria), request)
        except ScorerError:
            place = "answer.py" if request.workspace is None else None
        try:
            return await self._ground.score_answers(request, place, self._judge)
        except SandboxError as error:
            return failure(len(request.answers), str(error))

    async def _judge(self, before: Tree, after: Tree) -> SampleScore:
        changed = [
            path
            for path, file in after.files.items()
            if not file.is_link and before.files.get(path) != file and _may_be_python(path, file)
        ]
        new: dict[str, Counter[str]] = {}
        if changed:
            changed, found = await self._findings(before, after, changed)
            new = {
                path: found["after", number] - found["before", number]
                for number, path in enumerate(changed)
                if path.endswith(ENDINGS) or NO_PYTHON not in found["after", number]
            }
        for one in self._others:
            new |= await self._in_other(one, before, after)
        if not new:
            return NotApplicable(status="unscorable", reason=f"nothing was written that {self.name} has a tool for")
        count = sum(rules.total() for rules in new.values())
        lines = sum(_new_lines(before, after, path) for path in new)
        said = f"{count} new findings in {lines} new lines"
        shown = [f"{path}: {', '.join(sorted(rules))}" for path, rules in new.items() if rules][:SHOWN]
        return SampleScore(score=self.kind.score(count, lines), reason="; ".join([said, *shown]))

    async def _findings(self, before: Tree, after: Tree, changed: list[str]) -> tuple[list[str], Findings]:
        """Return the files checked, and their findings. If a run fails, files that need not be Python's are left out.

        Raises OwnFault and SandboxError.
        """
        try:
            return changed, findings_in(await self._ground.run(self._job(before, after, changed)))
        except OwnFault:
            own = [path for path in changed if path.endswith(ENDINGS)]
            if len(own) == len(changed):
                raise
            found = findings_in(await self._ground.run(self._job(before, after, own))) if own else _Found()
            return own, found

    async def _in_other(self, checked: Checked, before: Tree, after: Tree) -> dict[str, Counter[str]]:
        """Find what is new in the files of another language that were changed. Raises OwnFault and SandboxError."""
        changed = [
            path
            for path, file in after.files.items()
            if not file.is_link
            and before.files.get(path) != file
            and SUFFIXES.get(PurePosixPath(path).suffix) == checked.language
        ]
        new = {
            path: checked.matches_in(after.files[path]) - checked.matches_in(before.files.get(path)) for path in changed
        }
        for check in checked.checks if changed else ():
            tree = {
                f"{when}/m{number}{PurePosixPath(path).suffix}": file
                for number, path in enumerate(changed)
                for when, files in (("before", before.files), ("after", after.files))
                if (file := files.get(path)) is not None
            }
            found = findings_of(checked, check, await self._ground.run(job_of(check, tree)))
            for number, path in enumerate(changed):
                new[path] += found.get(("after", number), Counter()) - found.get(("before", number), Counter())
        return new

    def _job(self, before: Tree, after: Tree, changed: list[str]) -> Job:
        """Under names of ours: a module's own is none of the answer's doing, and could say where a finding lies."""
        tree = {RUFF: self._program}
        for number, path in enumerate(changed):
            suffix = ".pyi" if path.endswith(".pyi") else ".py"
            for when, files in (("before", before.files), ("after", after.files)):
                if (file := files.get(path)) is not None:
                    tree[f"{when}/m{number}{suffix}"] = file
        options = ("--isolated", "--no-cache", "--ignore-noqa", "--no-respect-gitignore", "--exit-zero", "--quiet")
        rules = ("--select", self.kind.rules, "--ignore", self.kind.ignored, "--output-format", "json-lines")
        folders = sorted({path.partition("/")[0] for path in tree} - {"tool"})
        environment = {"RAYON_NUM_THREADS": "1"}
        return Job([RUFF, "check", *options, *rules, *folders], tree=tree, environment=environment, limits=LIMITS)


class Style(SourceQuality):
    name = "style"
    kind = STYLE


class Security(SourceQuality):
    name = "security"
    kind = SECURITY


def findings_in(result: Result) -> Findings:
    """Rules by before or after and the file's number. Raises OwnFault for what ruff can't read to its end."""
    if result.exit_code in NOT_EXECUTED:
        raise SandboxError(f"ruff can't be run: {result.says}")
    if result.end is End.CANCELLED:
        raise SandboxError(result.says)
    if not result.succeeded:
        raise OwnFault(f"ruff does not get to the end of it: {result.says}")
    found: dict[tuple[str, int], Counter[str]] = {}
    for line in result.stdout.splitlines():
        finding = json.loads(line)
        place = PLACE.search(finding["filename"])
        if place is not None:
            rules = found.setdefault((place.group(1), int(place.group(2))), Counter())
            rules[finding["code"] or NO_PYTHON] += 1
    return _Found(found)


class _Found(dict[tuple[str, int], Counter[str]]):
    def __missing__(self, key: tuple[str, int]) -> Counter[str]:
        return Counter()


def _may_be_python(path: str, file: TreeFile) -> bool:
    if path.endswith(ENDINGS):
        return True
    content = bytes(file.content)
    if b"\0" in content or PYTHON.search(content) is None:
        return False
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return DATA.fullmatch(content) is None


def _new_lines(before: Tree, after: Tree, path: str) -> int:
    """Count distinct lines of code that were not there, moved or not.

    Blank lines, comments and repetitions don't count.
    """
    was = before.files.get(path)
    return len(_code(after.files[path]) - (_code(was) if was is not None else set()))


def _code(file: TreeFile) -> set[bytes]:
    return {
        line for one in bytes(file.content).splitlines() if (line := one.strip()) and not line.startswith((b"#", b"//"))
    }
