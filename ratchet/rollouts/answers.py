"""A Work answered, whoever makes its samples: one Response, published until it is confirmed.

An agent's model, a runner and `ratchet record` answer in this way. What a Work is answered with is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from ratchet.bus.amqp.forwarding import LARGEST_BODY
from ratchet.bus.protocol import Bus, derived_id
from ratchet.bus.topology import RESPONSES
from ratchet.concurrency.keyed import KeyedLock
from ratchet.service import failpoint
from ratchet.service.newest import Newest
from ratchet.service.telemetry import Log
from schemas.messages.base import Metadata
from schemas.messages.response import GenerationLatencies, Response, Sample
from schemas.messages.work import Grammar, Work
from schemas.messages.workspace import Artifact

log = Log("recorder")

KEPT_BYTES = 4 * 1024 * 1024
"""Only what is not acknowledged can come again: a few hundred answers at most, of some kilobytes each."""
ROOM_FOR_SCORES = 1024 * 1024
"""Bytes of a Reward beside the Response that it carries."""


class Answers:
    """Remembers the answers given last, so that a Work delivered again gets the same answer instead of a second one.

    A delivery that comes again while its answer is being made waits for it. In memory: after a restart the work is done
    again, and downstream the deterministic message ids take care of it.
    """

    def __init__(self, bus: Bus, kept_bytes: int = KEPT_BYTES) -> None:
        self._bus = bus
        self._made = Newest[str, bytes](kept_bytes)
        self._locks = KeyedLock()

    async def answer(self, work: Work, body: bytes, make: Callable[[], Awaitable[Response | None]]) -> bool:
        """Return when the Response is confirmed, or at once where `make` has none. `body` is the Work as it came.

        A failure of `make` is raised and not remembered. The result says whether the Work is answered.
        """
        key = key_of(work)
        async with self._locks.of(key):
            if (made := self._made.get(key)) is None:
                response = await make()
                if response is None:
                    return False
                made = encode_response(response, body)
                self._made.add(key, made, len(made))
        failpoint.reach("worked")
        message_id = derived_id(work.task_id, "response")
        await self._bus.publish(RESPONSES, made, type=Response.TYPE, message_id=message_id)
        return True


def key_of(work: Work) -> str:
    """Return a key of one Work, however often it is delivered, and of no other."""
    return f"{work.arm.sequence} {work.task_id}"


def response_of(
    work: Work,
    samples: Sequence[Sample],
    *,
    source: str | None,
    engine: str | None = None,
    error: str | None = None,
    latencies: GenerationLatencies | None = None,
    prompt_ids: tuple[int, ...] | None = None,
    grammar: Grammar | None = None,
    adapter_sha256: str | None = None,
) -> Response:
    """Return all of the Response but the Work. `grammar`: what the answers were held to. `adapter_sha256`: of the
    adapter that answered, if not its arm's."""
    return Response(
        task_id=work.task_id,
        response=samples[0].text if samples else "",
        agent_id=work.agent_id,
        metadata=Metadata(timestamp=datetime.now(UTC), source=source),
        samples=tuple(samples),
        error=error,
        prompt_ids=prompt_ids,
        sampling=work.sampling.model_copy(update={"grammar": grammar}) if grammar else work.sampling,
        adapter_version=work.arm.adapter_version,
        adapter_sha256=adapter_sha256 or work.arm.adapter_sha256,
        engine=engine,
        latencies=latencies or GenerationLatencies(),
    )


def encode_response(response: Response, work: bytes) -> bytes:
    """Return the message. Where none can hold all of it, samples that left more than their share left nothing; where
    none can hold that, an error that says so is the answer."""
    body = response.encode_around("work", work)
    if (too_large := _excess(body)) is None:
        return body
    log.error("too-large", f"{too_large}: what is more than its share is left out", task_id=response.task_id)
    body = in_shares(response).encode_around("work", work)
    if (too_large := _excess(body)) is None:
        return body
    log.error("too-large", f"{too_large}: these rollouts are lost", task_id=response.task_id)
    error = f"what was recorded can't be sent: {too_large}"
    return response.model_copy(update={"samples": (), "response": "", "error": error}).encode_around("work", work)


def _excess(body: bytes) -> str | None:
    """Say that a message is too large; None where it is not."""
    return f"a Response of {len(body):,} bytes is too large" if len(body) > LARGEST_BODY - ROOM_FOR_SCORES else None


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
    foreign = sample.foreign and tuple(part.model_copy(update={"turns": ()}) for part in sample.foreign)
    cut = {"text": "", "artifact": artifact, "tool_audit": None, "foreign": foreign}
    return sample.model_copy(update=cut | {"status": "limit", "says": says})
