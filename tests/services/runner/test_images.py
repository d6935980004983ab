"""A program that is an image: it is unpacked, run in place of the machine's /usr, and its answer is scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ratchet.programs.declared import Program
from ratchet.programs.environments import Environments
from ratchet.programs.images.installing import Image
from schemas.messages.work import Sampling, Work
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy
from services.scorer.strategies.strategy import Answer, ScoringRequest
from tests.images import ANSWERING, docker_save, file, with_bash
from tests.passable import passable_folder
from tests.services.runner.conftest import MakeHouse, limits

AGENT = f"""{ANSWERING}
[ -e /usr/bin ] || [ -e /etc/alternatives ] || echo "${{answer%%\\"*}}"
"""


@pytest.fixture
def environments() -> Iterator[Environments]:
    with passable_folder() as place:
        yield Environments(place)


async def score(text: str, work: Work) -> float | None:
    strategy = build_strategy(ScorerSettings.read(scorer="verifier:exact"))
    await strategy.start()
    request = ScoringRequest("t", work.input, (Answer(text),), reference=work.reference)
    try:
        return (await strategy.score(request))[0].score
    finally:
        await strategy.stop()


async def test_an_image_asks_the_model_and_its_answer_is_scored(
    make_house: MakeHouse, make_work: Callable[..., Work], environments: Environments, tmp_path: Path
) -> None:
    config = {"Entrypoint": ["bash", "agent.sh"], "WorkingDir": "/app", "Env": ["PATH=/bin"]}
    digest = docker_save(tmp_path / "it.tar", [with_bash(file("app/agent.sh", AGENT))], config)
    declared = Program(image=Image(archive=tmp_path / "it.tar", sha256=digest), limits=limits())
    assert declared.image is not None
    environments.images.install(declared.image, lambda _: None)
    work = make_work(input="abcde", reference="abcde", sampling=Sampling(n=2, max_tokens=200))

    async with make_house({"image": declared.with_requirements("image", environments, "")}) as house:
        response = await house.answered(work)

    assert [(one.text, one.status) for one in response.samples] == [("abcde", "finished")] * 2
    for sample in response.samples:
        assert sample.usage is not None and sample.segments is not None
        assert (sample.usage.calls, len(sample.segments)) == (1, 1)
        assert await score(sample.text, work) == 1.0
