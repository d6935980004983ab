"""A program's run as a Sample, and a group of them as a Response: the one rule, wherever the program runs.

How it is run, in a sandbox or as it is, is the caller's; what it may do to the record is decided here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from ratchet.bus.amqp.forwarding import LARGEST_BODY
from ratchet.bus.message_id import derived_id
from ratchet.bus.protocol import Bus
from ratchet.bus.topology import RESPONSES
from ratchet.conversation.segments import sample_of
from ratchet.rollouts.application import Recorder
from ratchet.rollouts.rollout import RecordedRollout
from ratchet.service.errors import Reject, one_line
from ratchet.service.telemetry import Log
from schemas.messages.base import Metadata
from schemas.messages.response import GenerationLatencies, Response, Sample, SampleStatus
from schemas.messages.work import Work
from schemas.messages.workspace import Artifact
from workbench.sandbox.limits import MIB

log = Log("recorder")

GIVEN_UP_S = 5.0
SAID_CHARS = 600
"""Of how a rollout ended: it stands in each line of the log, and for each rollout of a group in the Result."""

ROOM_FOR_SCORES = MIB
"""Bytes of a Reward beside the Response that it carries."""


@dataclass(frozen=True, slots=True)
class Ran:
    """Answer of a program, and how it ended as far as whoever ran it can tell, with a sentence. `seconds`: that it
    ran for."""

    text: str
    status: SampleStatus
    artifact: Artifact | None = None
    seconds: float | None = None
    says: str = ""


async def recorded(
    recorder: Recorder, rollout: RecordedRollout, program: str, run: Callable[[str], Awaitable[Ran]]
) -> Sample:
    """`run` gets the key its program calls the model with, which is worth nothing once this returns, or is cancelled.

    A program that failed or met a limit while the engine was away for it is `lost`.
    """
    key = recorder.begin(rollout)
    began = time.monotonic()
    try:
        ran = await run(key)
    finally:
        recorder.end(key)
    took = time.monotonic() - began if ran.seconds is None else ran.seconds
    with suppress(TimeoutError):  # what it was asking when it ended is given up as soon as its connection is seen to be
        async with asyncio.timeout(GIVEN_UP_S):
            await rollout.wait_idle()
    lost = ran.status in ("failed", "limit") and rollout.engine_trouble is not None
    status: SampleStatus = "lost" if lost else ran.status
    says = ran.says
    if status == "lost" and rollout.engine_trouble:
        says = f"{says}; the model was away: {rollout.engine_trouble}".removeprefix("; ")
    overruled = rollout.overruled
    sample = sample_of(rollout.conversation, ran.text, status=status, program=program, overruled=overruled)
    usage = sample.usage and sample.usage.model_copy(update={"seconds": round(took, 3)})
    return sample.model_copy(update={"usage": usage, "artifact": ran.artifact, "says": why_ended(status, says)})


def why_ended(status: SampleStatus, says: str) -> str | None:
    """Return what a Sample tells of its end: nothing of one that ended by itself."""
    return None if status == "finished" else one_line(says, SAID_CHARS) or None


def response_of(
    work: Work,
    samples: Sequence[Sample],
    *,
    engine: str | None,
    source: str,
    now: datetime,
    latencies: GenerationLatencies,
) -> Response:
    """All of it but the Work."""
    return Response(
        task_id=work.task_id,
        response=samples[0].text,
        agent_id=work.agent_id,
        metadata=Metadata(timestamp=now, source=source),
        samples=tuple(samples),
        sampling=work.sampling,
        adapter_version=work.arm.adapter_version,
        adapter_sha256=work.arm.adapter_sha256,
        engine=engine,
        latencies=latencies,
    )


async def publish_response(bus: Bus, response: Response, work: bytes) -> None:
    """Returns when it is confirmed. Where no message can hold all of it, those samples that left more than their share
    left nothing; where none can hold that, an error that says so is the answer."""
    try:
        await _publish(bus, response, work)
        return
    except Reject as too_large:
        log.error("too-large", f"{too_large}: what is more than its share is left out", task_id=response.task_id)
    try:
        await _publish(bus, in_shares(response), work)
    except Reject as too_large:
        log.error("too-large", f"{too_large}: these rollouts are lost", task_id=response.task_id)
        error = f"what was recorded can't be sent: {too_large}"
        await _publish(bus, response.model_copy(update={"samples": (), "response": "", "error": error}), work)


def in_shares(response: Response) -> Response:
    """Cut what samples left to half of a message, in equal shares; the other half is for what was recorded."""
    share = LARGEST_BODY // 2 // max(1, len(response.samples))
    samples = tuple(_in_share(sample, share) for sample in response.samples)
    return response.model_copy(update={"samples": samples, "response": samples[0].text if samples else ""})


def _in_share(sample: Sample, share: int) -> Sample:
    left = sample.model_copy(update={"segments": None, "completion_ids": None, "logprobs": None, "token_texts": None})
    if (size := len(left.model_dump_json().encode())) <= share:
        return sample
    says = f"what it left is {size:,} bytes, and its share of a message {share:,}"
    artifact = sample.artifact and Artifact(left_out={".": says}, tree_sha256=sample.artifact.tree_sha256)
    return sample.model_copy(update={"text": "", "artifact": artifact, "status": "limit", "says": says})


async def _publish(bus: Bus, response: Response, work: bytes) -> None:
    message_id = derived_id(response.task_id, "response")
    body = response.encode_around("work", work)
    if len(body) > LARGEST_BODY - ROOM_FOR_SCORES:
        raise Reject(f"a Response of {len(body):,} bytes is too large")
    await bus.publish(RESPONSES, body, type=Response.TYPE, message_id=message_id)
