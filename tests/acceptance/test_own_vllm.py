"""`ratchet up --engine vllm` starts a model server of its own and watches it. vLLM is played by vllm_stand_in.py."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from services.cli.fleet.local_broker import server_folder
from services.cli.fleet.model_server import OFFSET
from tests.acceptance.ratchet_command import Ratchet
from tests.acceptance.test_up_down import free_amqp_port, free_base, pid_of, processes_of
from tests.acceptance.vllm_stand_in import WORD, install
from tests.ratchet.models.tiny_model import save_tiny_model
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(server_folder() is None, reason="RabbitMQ is not installed here, so none can be started"),
]


def test_a_fleet_has_its_own_model_server_which_is_started_again_and_stopped_with_it(tmp_path: Path) -> None:
    model, programs = tmp_path / "model", tmp_path / "programs"
    save_tiny_model(model)
    programs.mkdir()
    path = f"{install(programs)}:{os.environ['PATH']}"
    ratchet = Ratchet(tmp_path, {"RATCHET_NAMESPACE": "vllm.", "PATH": path})
    ports = ["--port-base", str(base := free_base()), "--amqp-port", str(free_amqp_port())]
    options = ["--engine", "vllm", "--model", str(model), "--scorer", "verifier:exact", "--no-trainer", *ports]

    try:
        ran = ratchet("up", *options, "--vllm-args", "--max-model-len 256")
        assert ran.code == 0, ran.err
        assert f"http://127.0.0.1:{base + 10 + OFFSET}" in ran.out
        services = {one["name"]: one for one in ratchet("status", "--json").json["services"]}
        assert services["vllm-small"]["ready"]
        assert ratchet("submit", "a question").out.strip() == WORD

        os.kill(pid := pid_of(ratchet, "vllm-small"), signal.SIGKILL)
        wait_until(lambda: pid_of(ratchet, "vllm-small") not in (0, pid), "the server is started again")
        assert ratchet("submit", "another question").out.strip() == WORD
    finally:
        ratchet("down")
    assert processes_of(tmp_path) == []


def test_without_vllm_it_is_said_at_once_what_to_do(tmp_path: Path) -> None:
    ratchet = Ratchet(tmp_path, {"PATH": "/usr/bin:/bin"})

    ran = ratchet("up", "--engine", "vllm", "--model", "some/model", timeout_s=30)

    assert ran.code == 2
    assert "pip install -e '.[vllm]'" in ran.err
    assert "RATCHET_AGENT_VLLM_URL" in ran.err
    assert processes_of(tmp_path) == []
