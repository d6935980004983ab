"""Runs a program as it is, recorded: what it asks a model is the rollout, what it prints is its answer.

No sandbox: it runs as whoever runs this. It and what it started are killed in the end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE

from ratchet.conversation.segments import sample_of
from ratchet.recorder.application import Recorder
from ratchet.recorder.rollout import RecordedRollout
from schemas.messages.response import Sample, SampleStatus

MOST_BYTES = 1024 * 1024
"""Of what it prints."""


async def run_recorded(
    rollout: RecordedRollout,
    command: Sequence[str],
    *,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
) -> Sample:
    """`limit` is the status of one that took more seconds or printed more than it may, `failed` of one that exits with
    a code.

    The program finds OPENAI_BASE_URL, ANTHROPIC_BASE_URL and a key for both in its environment, which is worth nothing
    once this returns.
    """
    recorder = Recorder()
    key = recorder.begin(rollout)
    async with recorder.serving() as base_url:
        own = dict(os.environ if environment is None else environment)
        own |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": key}
        own |= {"ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"), "ANTHROPIC_API_KEY": key}
        program = await asyncio.create_subprocess_exec(*command, env=own, stdout=PIPE, start_new_session=True)
        said, status = await _said(program, timeout_s)
        recorder.end(key)
    return sample_of(rollout.conversation, said, status=status, program=Path(command[0]).name)


async def _said(program: asyncio.subprocess.Process, timeout_s: float) -> tuple[str, SampleStatus]:
    assert program.stdout is not None
    said = bytearray()

    async def read(stream: asyncio.StreamReader) -> None:
        while (part := await stream.read(65536)) and len(said) <= MOST_BYTES:
            said.extend(part)
        if len(said) <= MOST_BYTES:
            await program.wait()

    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await read(program.stdout)
        ended = program.returncode
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        await program.wait()
    status: SampleStatus = "limit" if ended is None else "failed" if ended else "finished"
    return said[:MOST_BYTES].decode(errors="replace").strip(), status
