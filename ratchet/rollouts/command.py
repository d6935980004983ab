"""Runs a program as it is, recorded: what it asks a model is the rollout, what it prints is its answer.

No sandbox: it runs as whoever runs this. It and what it started are killed in the end, also where this process is
killed itself (guard.py).
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryFile
from urllib.parse import urlsplit

from ratchet.rollouts import guard
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.recording import Ran, record
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.service.errors import one_line
from schemas.messages.response import Sample, SampleStatus

MOST_BYTES = 1024 * 1024
"""Bytes of what it prints."""
MOST_NAME = 200
INTERPRETER = re.compile(r"((?P<python>python|pypy)|bash|dash|sh|zsh|(?P<other>node|nodejs|ruby|perl|php))[\d.]*")
"""Programs that run a script, of which the command's name says nothing."""
OTHER_KEYS = ("ANTHROPIC_AUTH_TOKEN",)
"""That clients would send in place of the rollout's."""
NO_PROXY = ("NO_PROXY", "no_proxy")
"""Hosts that clients ask without a proxy: the recorder's is one, whatever proxy the user's machine has."""
WITH_VALUE = ("W", "X")
VALUE_FOLLOWS = ("-W", "-X", "-r", "--require", "--import")
"""The next word is the option's."""


@dataclass(frozen=True, slots=True)
class Program:
    """`stdin` is what it may read there. `environment` in place of this process's own, if given. `name`: what it is
    called in the log, if not as `program_name` has it. `label`: before each line of its stderr, where others write to
    the same."""

    command: tuple[str, ...]
    stdin: str = ""
    environment: Mapping[str, str] | None = None
    name: str | None = None
    label: str = ""


def program_name(command: Sequence[str]) -> str:
    """The script's where the command is an interpreter with one (`python3 -u tools/agent.py` is `agent.py`, `python -m
    my.agent` is `my.agent`), else the command's own; at most as long as a name may be."""
    name, words = Path(command[0]).name, list(command[1:])
    kind = INTERPRETER.fullmatch(name)
    while kind and words and words[0].startswith("-"):
        option = words.pop(0)
        if _is_code(option, with_c=kind["other"] is None):
            words.clear()
        elif kind["python"] and option.endswith("m") and option[1:2] not in WITH_VALUE:
            break
        elif option in VALUE_FOLLOWS:
            del words[:1]
    return one_line(Path(words[0]).name if kind and words else name, MOST_NAME) or "program"


def _is_code(option: str, *, with_c: bool) -> bool:
    """The word behind it is code, or code is read from stdin."""
    if with_c:
        return option == "-" or (option[1:2] not in ("-", *WITH_VALUE) and "c" in option)
    return option in ("-", "-e", "-E", "-p", "-pe", "-ne", "--eval", "--print")


async def run_recorded(
    rollout: RecordedRollout, command: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None
) -> Sample:
    """One program, with a recorder of its own: as `run_with`."""
    recorder = Recorder()
    async with recorder.serving() as base_url:
        program = Program(tuple(command), environment=environment)
        return await run_with(recorder, base_url, rollout, program, timeout_s=timeout_s)


async def run_with(
    recorder: Recorder, base_url: str, rollout: RecordedRollout, program: Program, *, timeout_s: float
) -> Sample:
    """Return the run of one program as a Sample. `base_url`: the recorder's."""
    start = CommandStart(recorder, base_url, program, timeout_s)
    sample, _ = await record(rollout, program.name or program_name(program.command), start)
    return sample


@dataclass(frozen=True, slots=True)
class CommandStart:
    """Starts a program as it is.

    `limit` is the status of one that took more seconds or printed more than it may, `failed` of one that exits with a
    code. The program finds OPENAI_BASE_URL, ANTHROPIC_BASE_URL and a key for both in its environment.
    """

    recorder: Recorder
    base_url: str
    program: Program
    timeout_s: float

    async def __call__(self, rollout: RecordedRollout) -> Ran:
        own = os.environ if self.program.environment is None else self.program.environment
        kept = {name: value for name, value in own.items() if name not in OTHER_KEYS}
        kept |= {name: _with_host(kept.get(name), self.base_url) for name in NO_PROXY}
        with self.recorder.key_for(rollout) as key:
            return await _run(self.program, {**kept, **model_environment(self.base_url, key)}, self.timeout_s)


def model_environment(base_url: str, key: str) -> dict[str, str]:
    """Return the variables by which clients of both vendors find the model. `base_url` is OpenAI's, with /v1."""
    return {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": key,
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": key,
    }


def _with_host(excepted: str | None, base_url: str) -> str:
    host = urlsplit(base_url).hostname or ""
    return ",".join(filter(None, (excepted, host)))


async def _run(program: Program, environment: Mapping[str, str], timeout_s: float) -> Ran:
    held, holding = os.pipe()
    try:
        async with labelled_stderr(program.label) as stderr:
            with TemporaryFile() as stdin:
                stdin.write(program.stdin.encode(errors="replace"))
                stdin.seek(0)
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-I", "-S", guard.__file__, str(held), *program.command),
                    env=dict(environment),
                    stdin=stdin,
                    stdout=PIPE,
                    stderr=stderr,
                    pass_fds=(held,),
                    start_new_session=True,
                )
            os.close(held)
            held = -1
            return await _read(process, timeout_s)
    finally:
        os.close(holding)
        if held >= 0:
            os.close(held)


async def _read(process: asyncio.subprocess.Process, timeout_s: float) -> Ran:
    assert process.stdout is not None
    said = bytearray()

    async def read(stream: asyncio.StreamReader) -> None:
        while (part := await stream.read(65536)) and len(said) <= MOST_BYTES:
            said.extend(part)
        if len(said) <= MOST_BYTES:
            await process.wait()

    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await read(process.stdout)
        ended = process.returncode
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    status: SampleStatus = "limit" if ended is None else "failed" if ended else "finished"
    return Ran(said[:MOST_BYTES].decode(errors="replace").strip(), status, says=_sentence(ended, len(said), timeout_s))


def _sentence(code: int | None, printed: int, timeout_s: float) -> str:
    """Say how it ended; None: it was ended. What it wrote to stderr was seen by who runs this."""
    if code is None:
        too_much = f"it printed more than {MOST_BYTES:,} bytes"
        return too_much if printed > MOST_BYTES else f"it was ended after {timeout_s:g} s"
    if code == guard.NOT_STARTED:
        return f"it exited with {code}, as where a command is not there or can't be executed"
    return f"it exited with {code}"


BLOCK_BYTES = 65_536
LEFT_S = 1.0
"""Seconds for what is still to be written when the program has ended; a process that outlives it is not waited for."""


@asynccontextmanager
async def labelled_stderr(label: str) -> AsyncIterator[int | None]:
    """The file descriptor that is a process's stderr within the block; None, which is our own, without a label."""
    if not label:
        yield None
        return
    reading, writing = os.pipe()
    stream = asyncio.StreamReader()
    pipe = os.fdopen(reading, "rb", 0)  # the transport closes it
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
    copying = asyncio.create_task(_copy_lines(stream, label))
    try:
        yield writing
    finally:
        os.close(writing)
        with suppress(TimeoutError):
            await asyncio.wait_for(copying, LEFT_S)
        transport.close()


async def _copy_lines(stream: asyncio.StreamReader, label: str) -> None:
    """A line that is longer than a block, or the last one without an end, is written as a line."""
    rest = b""
    while block := await stream.read(BLOCK_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        if len(rest) > BLOCK_BYTES:
            lines, rest = [*lines, rest], b""
        _write(lines, label)
    _write([rest] if rest else [], label)


def _write(lines: list[bytes], label: str) -> None:
    sys.stderr.write("".join(f"{label}{line.decode(errors='replace')}\n" for line in lines))
    sys.stderr.flush()
