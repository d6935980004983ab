"""What the agent does with its settings before it touches a broker."""

from __future__ import annotations

import json

import pytest

from ratchet.service.errors import SettingsError
from services.agent.engines.installed import make_engine
from services.agent.engines.scripted import EchoEngine
from services.agent.settings import AgentSettings
from tests.programs import REPOSITORY, run_module


def test_an_engine_is_found_by_its_name(settings: AgentSettings) -> None:
    assert isinstance(make_engine(settings), EchoEngine)


def test_an_unknown_engine_is_refused_with_those_there_are(settings: AgentSettings) -> None:
    with pytest.raises(
        SettingsError, match=r"'quantum': no such engine; installed are echo, openai, scripted, transformers, vllm"
    ):
        make_engine(settings.model_copy(update={"agent_engine": "quantum"}))


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("RATCHET_AGENT_ENGINE", "quantum", "no such engine"),
        ("RATCHET_AGENT_ID", "unheard-of", "a queue nobody fills"),
        ("RATCHET_AGENT_MAX_BATCH", "0", "RATCHET_AGENT_MAX_BATCH"),
    ],
)
def test_settings_that_can_not_work_end_the_process_with_a_sentence(variable: str, value: str, sentence: str) -> None:
    run = run_module("services.agent", folder=REPOSITORY, settings={variable: value})

    assert run.code == 1
    line = json.loads(run.out.splitlines()[-1])
    assert (line["level"], line["service"]) == ("ERROR", "agent")
    assert sentence in line["message"]
