"""Runs what answers are, for all parts of a scorer: one sandbox, and the workspaces of tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import ClassVar, Self
from weakref import WeakValueDictionary

from ratchet.bus.in_hand import NEVER
from ratchet.service.errors import ScorerError, one_line
from ratchet.service.telemetry import Log
from schemas.messages.reward import SampleScore, ScorerIdentity
from services.scorer.hidden_tests.answer import NoFiles, files_in, patch_in
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.strategy import Answer, ScoringRequest, failure, no_score
from workbench.sandbox.job import Job, Result, SandboxError
from workbench.sandbox.sandbox import Sandbox
from workbench.trees import Bounds, Tree, check_tree
from workbench.workspaces.errors import PatchRefused, WorkspaceError, WorkspaceUnavailable
from workbench.workspaces.workspaces import Workspaces

log = Log("tests")
NOTHING = Tree({})
MOST = Bounds(2**31, 2**20)
"""The bounds of a workspace made from an answer's text; smaller bounds are the sandbox's."""


class OwnFault(Exception):
    """A sentence that says why an answer is worth nothing."""


class OnGround:
    """The base of strategies that run answers. `name` is what the settings call one."""

    name: ClassVar[str]
    revision: str
    one_by_one = True

    def __init__(self, settings: ScorerSettings) -> None:
        self._ground = Ground.for_settings(settings)

    @property
    def identity(self) -> ScorerIdentity:
        return ScorerIdentity(id=self.name, revision=self.revision)

    async def start(self) -> None:
        """Raises ScorerError, with what mends it, where no sandbox holds."""
        await self._ground.open(self.name)

    async def stop(self) -> None:
        await self._ground.close()

    def trouble(self) -> str | None:
        return None

    def advanced_at(self) -> float:
        return self._ground.advanced_at


class Ground:
    """Opened by the first part that starts, closed by the last that stops."""

    def __init__(self, settings: ScorerSettings) -> None:
        self._settings = settings
        self._slots = asyncio.Semaphore(settings.sandbox_runs_at_once)
        self._opening = asyncio.Lock()
        self._users = 0
        self._sandbox: Sandbox | None = None
        self._workspaces: Workspaces | None = None
        self.advanced_at = NEVER

    @classmethod
    def for_settings(cls, settings: ScorerSettings) -> Self:
        """One for all who have the same settings."""
        key = settings.model_dump_json()
        found = _GROUNDS.get(key)
        if found is None:
            found = _GROUNDS[key] = cls(settings)
        assert isinstance(found, cls)
        return found

    async def open(self, name: str) -> None:
        """Raises ScorerError, with what mends it, where no sandbox holds."""
        async with self._opening:
            self._users += 1
            if self._sandbox is not None:
                return
            self._slots = asyncio.Semaphore(self._settings.sandbox_runs_at_once)  # it belongs to the loop that opens
            try:
                self._sandbox = await Sandbox.opened_or_shown(self._settings)
                self._workspaces = Workspaces(self._settings, self._sandbox)
            except SandboxError as error:
                self._users -= 1
                raise ScorerError(f"the scorer `{name}` runs code and refuses to without a sandbox: {error}") from error
            log.info("sandbox-holds", self._sandbox.facts.says)

    async def close(self) -> None:
        """Runs end with the calls that wait for them."""
        self._users -= 1
        if self._users <= 0 and self._workspaces is not None:
            workspaces, self._workspaces, self._sandbox = self._workspaces, None, None
            await workspaces.close()

    @property
    def has_proc(self) -> bool:
        """Tells whether its sandboxes have /proc, once it is open."""
        return self._sandbox is None or self._sandbox.has_proc

    async def run(self, job: Job) -> Result:
        assert self._sandbox is not None, "open() comes first"
        async with self._slots:
            self.advanced_at = time.monotonic() + job.limits.wall_s
            return await self._sandbox.run(job)

    async def original_tree(self, request: ScoringRequest) -> Tree:
        """The workspace as it was; empty where the task has none."""
        if request.workspace is None:
            return NOTHING
        assert self._workspaces is not None, "open() comes first"
        return await self._workspaces.tree(request.workspace)

    async def with_answer(self, before: Tree, answer: Answer, place: str | None) -> Tree:
        """The workspace as the answer leaves it: by its artifact's patch, by a patch that is its text, or by files.

        `place` is where a text that is one file goes. Raises PatchRefused, NoFiles, OwnFault, or SandboxError.
        """
        assert self._workspaces is not None, "open() comes first"
        if answer.artifact is not None:
            against = answer.artifact.tree_sha256
            if against is not None and against != before.sha256:
                raise SandboxError("the workspace is another than the one that the answer's patch was made against")
            return await self._workspaces.apply_patch(before, answer.artifact.patch)
        if before is not NOTHING and (patch := patch_in(answer.text)) is not None:
            return await self._workspaces.apply_patch(before, patch)
        try:
            return check_tree(before.with_files(files_in(answer.text, place)).files, MOST)
        except WorkspaceError as error:
            raise OwnFault(str(error)) from error

    async def score_answers(
        self, request: ScoringRequest, place: str | None, judge: Callable[[Tree, Tree], Awaitable[SampleScore]]
    ) -> list[SampleScore]:
        """Each answer by `judge`, which is given the workspace before and after; equal ones once, unless asked afresh.

        `judge` raises OwnFault for what is worth nothing, SandboxError for a failure of ours.
        """
        try:
            before = await self.original_tree(request)
        except WorkspaceError as error:
            return no_score(len(request.answers), one_line(str(error)))
        except (WorkspaceUnavailable, SandboxError) as error:
            return failure(len(request.answers), one_line(str(error)))

        async def one(answer: Answer) -> SampleScore:
            try:
                return await judge(before, await self.with_answer(before, answer, place))
            except (OwnFault, NoFiles, PatchRefused) as error:
                return SampleScore(score=0.0, reason=one_line(str(error)))
            except SandboxError as error:
                return failure(1, one_line(str(error)))[0]

        if request.fresh:
            return list(await asyncio.gather(*map(one, request.answers)))
        distinct = list(dict.fromkeys(request.answers))
        scores = dict(zip(distinct, await asyncio.gather(*map(one, distinct)), strict=True))
        return [scores[answer] for answer in request.answers]


_GROUNDS: WeakValueDictionary[str, Ground] = WeakValueDictionary()
