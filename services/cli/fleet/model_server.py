"""Plans the vLLM servers of a fleet on one machine: one beside each agent, since loaded adapters belong to a server.

They are supervised like the services. Nothing is started here, and whether there is a GPU vLLM itself finds out.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from ratchet.models.known import KNOWN, model_folder
from ratchet.service.entry_points import to_install
from ratchet.service.settings import FleetSettings
from services.cli.fleet.options import FleetOptions
from services.cli.fleet.supervisord import Program
from services.cli.terminal import UsageError

OFFSET = 100
"""The distance from an agent's port to that of its server."""
LOADING_S = 1800.0
MEMORY_SHARE = 0.9
"""The share of the GPU's memory that all servers of this machine take together: vLLM's own default for one."""
URL, MAX_ADAPTERS = "RATCHET_AGENT_VLLM_URL", "RATCHET_AGENT_MAX_ADAPTERS"
ADAPTERS = 4
STOP_WAIT_S = 30


def beside(agent: Program, options: FleetOptions) -> Program:
    """Return the server of this agent. Raises UsageError where vLLM is not installed."""
    port = _port(agent)
    loras = os.environ.get(MAX_ADAPTERS, str(ADAPTERS))
    known = options.model in KNOWN and not (Path(options.model) / "config.json").exists()
    command = {
        "--host": "127.0.0.1",
        "--port": str(port),
        "--served-model-name": options.model,
        "--gpu-memory-utilization": f"{MEMORY_SHARE / (len(options.agents) * options.replicas):.2f}",
        "--max-loras": loras,
        "--max-cpu-loras": str(2 * int(loras)),
        "--max-lora-rank": str(FleetSettings.read().adapter_max_rank),
        "--logprobs-mode": "processed_logprobs",
        "--generation-config": "vllm",
    }
    return Program(
        agent.name.replace("agent", "vllm", 1),
        (
            *(_vllm(), "serve", str(model_folder(options.model)) if known else options.model, "--enable-lora"),
            *(word for option in command.items() for word in option),
            *shlex.split(options.vllm_args),
        ),
        {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1"},
        port,
        STOP_WAIT_S,
        ours=False,
    )


def told_to(agent: Program, options: FleetOptions) -> Mapping[str, str]:
    """Return what its agent must know of it; with the model's own tokenizer users can't write control tokens."""
    told = {URL: f"http://127.0.0.1:{_port(agent)}", MAX_ADAPTERS: os.environ.get(MAX_ADAPTERS, str(ADAPTERS))}
    return {"RATCHET_AGENT_TOKENIZER": options.model} | told


def _port(agent: Program) -> int:
    assert agent.http_port is not None
    return agent.http_port + OFFSET


def _vllm() -> str:
    """The program: of this environment, else of the PATH, since vLLM may have an environment of its own."""
    here = Path(sys.executable).with_name("vllm")
    if found := str(here) if here.exists() else shutil.which("vllm"):
        return found
    raise UsageError(
        f"--engine vllm starts a vLLM server, and there is none: {to_install('vllm')}, on a machine with a GPU. "
        f"For a server that runs already set {URL}"
    )
