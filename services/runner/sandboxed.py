"""Starts a declared program in a sandbox of its own, with the recorder as its one way out, and tells how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ratchet.programs.declared import TASK_FILE, TASK_VARIABLE, Program
from ratchet.programs.task_input import as_text
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.command import model_environment
from ratchet.rollouts.own_socket import serving
from ratchet.rollouts.recording import Ran
from ratchet.rollouts.rollout import Budget, RecordedRollout
from ratchet.service import failpoint
from ratchet.service.errors import SettingsError, one_line
from schemas.messages.response import SampleStatus
from schemas.messages.work import Work
from schemas.messages.workspace import Artifact
from workbench.sandbox.job import WORKSPACE, End, Job, Listen, Result, SandboxError
from workbench.sandbox.limits import MIB
from workbench.sandbox.sandbox import Sandbox
from workbench.trees import Tree
from workbench.workspaces.workspaces import Workspaces

PORT = 47_331
"""Port of the recorder, as it is seen inside; each sandbox has a network of its own."""
BASE_URL = f"http://127.0.0.1:{PORT}/v1"
REQUESTS_A_CALL = 32
"""A rollout may send so many requests for each call that it may make: retries, refusals, lists of models, and five for
each call of a tool."""
LEAST_REQUESTS = 256
BYTES_A_TOKEN, LEAST_BODY = 32, 256 * 1024
"""A request that has more can't fit the context, whatever its tokens."""
SHOWN_CHARS = 400
MOST_ADDED = 32 * MIB
"""Bytes that a rollout may leave in its workspace beyond what was there; the rest is left out, with a reason."""


@dataclass(frozen=True, slots=True)
class SandboxStart:
    """Starts a program for the sample with that number. `tree`: what its workspace begins with, None for an empty
    folder that nobody asks back."""

    sandbox: Sandbox
    workspaces: Workspaces
    program: Program
    work: Work
    number: int
    seconds: float
    tree: Tree | None = None
    begins: Tree | None = None
    """The files of a later turn, where they are not those of `tree`."""

    async def __call__(self, rollout: RecordedRollout) -> Ran:
        return (await self.run(rollout))[0]

    async def run(self, rollout: RecordedRollout) -> tuple[Ran, Tree | None]:
        """Return what came of it, and its workspace as it left it."""
        budget, recorder = rollout.budget, Recorder(max(LEAST_BODY, BYTES_A_TOKEN * rollout.context))
        most_requests = max(LEAST_REQUESTS, REQUESTS_A_CALL * self.program.limits.calls)
        try:
            with recorder.key_for(rollout) as key:
                async with serving(recorder, budget, most_requests) as listen:
                    job = self.job(key, {PORT: listen})
                    failpoint.reach("rollout-begun")
                    result = await self.sandbox.run(job, called_off=budget.spent)
            ran = classify_end(self.program, result, budget)
            if ran.status == "cancelled":
                return ran, None
            left = Tree(result.tree) if self.tree is not None else None
            return replace(ran, artifact=await self._artifact(result), seconds=result.wall_s), left
        except (SandboxError, OSError) as error:
            return Ran("", "lost", says=f"a failure of ours: {error}"), None

    async def _artifact(self, result: Result) -> Artifact | None:
        if self.tree is None or self.work.workspace is None:
            return None
        return await self.workspaces.artifact(self.tree, result, self.work.workspace.collect)

    def job(self, key: str, listeners: Mapping[int, Listen]) -> Job:
        """Return what the program sees: never the reference or the criteria, and only one address, the recorder's."""
        work, program = self.work, self.program
        text = as_text(work.input)
        environment = {
            **program.environment,
            **model_environment(BASE_URL, key),
            "RATCHET_TASK_ID": work.task_id,
            "RATCHET_SAMPLE": str(self.number),
            **({TASK_VARIABLE: text} if program.task == "environment" else {}),
        }
        limits = program.limits.in_sandbox(self.seconds)
        begins = self.begins or self.tree
        if self.tree is not None:
            limits = replace(limits, collected_bytes=min(limits.workspace_bytes, self.tree.size + MOST_ADDED))
        data = {path: content.encode() for path, content in program.data.items()}
        if program.task == "file":
            data[TASK_FILE] = text.encode(errors="replace")
        return Job(
            program.command_for(work.input),
            stdin=text.encode(errors="replace") if program.task == "stdin" else b"",
            environment=environment,
            mounts=program.binds,
            data=data,
            listeners=listeners,
            collect=(program.answer_file,) if program.answer_file else (),
            tree=begins.files if begins else {},
            collect_tree=self.tree is not None,
            root=program.image.folder if program.image else None,
            links={seen_at: WORKSPACE} if work.workspace and (seen_at := work.workspace.seen_at) else {},
            directory=program.directory or WORKSPACE,
            limits=limits,
        )


async def require_findable(sandbox: Sandbox, name: str, program: Program) -> None:
    """Raises SettingsError for a program whose command can't be found from inside of its sandbox."""
    first = program.command[0]
    looks = () if "{" in first or (("/" in first) and not first.startswith("/")) else (first,)
    script = 'for one in "$@"; do command -v -- "$one" >/dev/null || exit 1; done'
    job = Job(
        ("sh", "-c", script, "sh", *looks),
        mounts=program.binds,
        data={path: text.encode() for path, text in program.data.items()},
        environment=program.environment,
        root=program.image.folder if program.image else None,
        directory=program.directory or WORKSPACE,
    )
    try:
        result = await sandbox.run(job)
    except SandboxError as error:
        raise SettingsError(
            f"program {name}: its sandbox can't be set up ({error}): what it binds must be there, in folders that "
            "every user may pass"
        ) from error
    if not result.succeeded:
        sees = "its image" if program.image else "/usr of this machine"
        raise SettingsError(
            f"program {name}: {first!r} is not to be found in its sandbox, which has {sees} and what "
            f"the program binds: bind its folder and name it by its whole path, or set PATH in its environment"
        )


def classify_end(program: Program, result: Result, budget: Budget) -> Ran:
    """Return how the end is told, with a sentence why. A run is scored by what it left, whatever ended it."""
    answer, says = result.stdout, result.says
    if program.answer_file:
        answer = result.files.get(program.answer_file, b"")
        if program.answer_file in result.left_out:
            says += f"; {program.answer_file}: {result.left_out[program.answer_file]}"
    status: SampleStatus
    match result.end:
        case End.EXITED if result.exit_code and budget.says and not budget.called_off:
            status, says = "limit", budget.says  # its call was refused, and it gave up before it was ended
        case End.EXITED:
            status = "failed" if result.exit_code else "finished"
        case End.SIGNALLED:
            status = "failed"
        case End.CANCELLED:
            status, says = "cancelled" if budget.called_off else "limit", budget.says or says
        case _:
            status = "limit"
    if status in ("failed", "limit") and (said := _last_words(result, printed=program.answer_file is not None)):
        says += f"; it said: {said}"
    return Ran(answer.decode(errors="replace").strip(), status, says=says)


def _last_words(result: Result, *, printed: bool) -> str:
    """Return the end of what it wrote to stderr, else of what it printed, where that is not its answer."""
    for written in (result.stderr, result.stdout if printed else b""):
        if said := written[-4 * SHOWN_CHARS :].decode(errors="replace").strip():
            return one_line(said if len(said) <= SHOWN_CHARS else f"…{said[-SHOWN_CHARS:]}")
    return ""
