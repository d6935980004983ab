"""vLLM servers: on GPUs, all of them in use, with the options that the fleet's log and adapters need."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.checks.cluster import ROLE, Cluster, Pods
from infra.checks.declared import our_containers
from infra.checks.folders import hub_token_at
from services.agent.settings import AgentSettings
from services.scorer.settings import ScorerSettings

COMMAND = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values that `--max-lora-rank` takes."""
LOGGED = {"--logprobs-mode": "processed_logprobs", "--generation-config": "vllm"}
"""So that logged log-probabilities are those sampled from."""
CACHES = ("HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
KNOWN = {*CACHES, "HF_HOME", "HF_TOKEN_PATH", "USER", "VLLM_NO_USAGE_STATS"}
LOADING_S = 20 * 60
"""The least time to load a large model from a network disk."""
LORA = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
IMAGE = re.compile(r"/vllm-openai:v\d+\.\d+\.\d+(-[\w.-]+)?(@sha256:\w+)?$")


def vllm_serves_what_it_must(cluster: Cluster) -> Iterator[str]:
    """a vLLM server has GPUs and uses them all, serves the model it is asked for, and logs what was sampled from"""
    beside = [pods for pods, _ in servers(cluster)]
    for one in our_containers(cluster):
        asks = isinstance(one.settings, AgentSettings) and one.settings.agent_engine == "vllm"
        if asks is not (one.pods in beside):
            yield f"{one} asks {'a' if asks else 'no'} vLLM beside it, and there is {'none' if asks else 'one'}"
    for pods, box in servers(cluster):
        who = f"{pods}, container {box['name']}"
        options, variables = options_of(box), dict(cluster.environment(pods, box))
        gpus = [int(n) for name, n in box["resources"].get("limits", {}).items() if "gpu" in name]
        if sum(gpus) < 1:
            yield f"{who} has no GPU"
        elif (ranks := _ranks(options)) != sum(gpus) * pods.machines:
            yield f"{who} splits its model over {ranks} GPUs, and has {sum(gpus) * pods.machines}"
        runs = box.get("command", [])
        served = (
            (runs[:2] == ["vllm", "serve"] and "--headless" in options) if pods.works_for_a_leader else runs == COMMAND
        )
        if not served or not IMAGE.search(box["image"]):
            yield f"{who} runs {' '.join(box.get('command', []))} of {box['image']}, which is no vLLM server"
        listens = [options["--port"]] if "--port" in options else []
        if listens != [str(port["containerPort"]) for port in box.get("ports", [])]:
            yield f"{who} listens on {options.get('--port')}, and its port is {box.get('ports')}"
        for name, value in LOGGED.items():
            if options.get(name) != value:
                yield f"{who}: {name} is {options.get(name)!r}; it must be {value!r}"
        starting = box.get("startupProbe")
        if starting and starting["periodSeconds"] * starting["failureThreshold"] < LOADING_S:
            yield f"{who} is ended unless it loads its model within {starting['failureThreshold']} probes"
        shared = pods.mount_of(box, "/dev/shm")
        if shared is None or not shared.in_memory:
            yield f"{who} has no memory at /dev/shm for its processes to share a model in"
        token = pods.mount_of(box, hub_token_at(variables))
        if cluster.settings.hub_token_secret and (token is None or token.kind != "site-secret"):
            yield f"{who} does not see the token of the hub at {variables.get('HF_TOKEN_PATH')}"
        yield from (f"{who}: {fault}" for fault in _folders(pods, box, variables))
        yield from (f"{who}: {fault}" for fault in _misfits(cluster, pods, options, variables))


def servers(cluster: Cluster) -> Iterator[tuple[Pods, Mapping[str, Any]]]:
    for pods in cluster.pods:
        beside = pods.spec.get("initContainers") or []
        yield from ((pods, box) for box in (pods.spec["containers"] if pods.labels.get(ROLE) == "judge" else beside))


def _ranks(options: Mapping[str, str]) -> int:
    return int(options.get("--tensor-parallel-size", 0)) * int(options.get("--pipeline-parallel-size", 1))


def options_of(box: Mapping[str, Any]) -> dict[str, str]:
    """Return the options by name; of `vllm serve MODEL` the model, too."""
    words, model = list(box.get("args", [])), box.get("command", [])[2:3]
    return ({"--model": model[0]} if model and not model[0].startswith("vllm.") else {}) | {
        word: "" if index + 1 == len(words) or words[index + 1].startswith("--") else words[index + 1]
        for index, word in enumerate(words)
        if word.startswith("--")
    }


def _folders(pods: Pods, box: Mapping[str, Any], variables: Mapping[str, str]) -> Iterator[str]:
    for name in CACHES:
        mount = pods.mount_of(box, variables.get(name, "/root"))
        if mount is None or mount.kind != "scratch":
            yield f"{name} is {variables.get(name)!r}, where it can't write"
    mount = pods.mount_of(box, variables.get("HF_HOME", "/root"))
    if mount is None or mount.kind != "claim":
        yield f"HF_HOME is {variables.get('HF_HOME')!r}: each pod would download its model again"
    if "USER" not in variables:
        yield "it is told no USER: its user is in no image's passwd, and torch asks for its name"
    if variables.get("VLLM_NO_USAGE_STATS") != "1":
        yield "it would tell its makers of its use: VLLM_NO_USAGE_STATS is not 1"
    yield from (f"it is told {name}, which nothing reads" for name in sorted(variables.keys() - KNOWN - {LORA}))


def _misfits(cluster: Cluster, pods: Pods, options: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[str]:
    """Compare it with what the agent beside it, or the scorer, asks for."""
    model, served, port = options.get("--model"), options.get("--served-model-name"), options.get("--port")
    for one in our_containers(cluster):
        match one.settings:
            case AgentSettings() as agent if one.pods is pods:
                if agent.agent_model != model or agent.agent_model != served or agent.agent_tokenizer != model:
                    yield f"it serves {model} as {served}; its agent asks for {agent.agent_model}"
                if agent.agent_vllm_url != f"http://127.0.0.1:{port}":
                    yield f"it listens on port {port}; the agent beside it asks {agent.agent_vllm_url}"
                yield from _adapters(agent, options, variables)
                if one.box["resources"].get("limits", {}).keys() - {"memory"}:
                    yield "the agent beside it holds a GPU, too"
            case ScorerSettings() as scorer if pods.labels.get(ROLE) == "judge" and pods.owner.name in (
                scorer.scorer_judge_url
            ):
                if scorer.scorer_judge_model != served or model != served:
                    yield f"it serves {model} as {served}; {one} asks for {scorer.scorer_judge_model}"
                here = f"http://{pods.owner.name}:{port}/v1"
                if scorer.scorer_judge_url.rstrip("/") != here and not pods.works_for_a_leader:
                    yield f"it is served at {here}; {one} asks {scorer.scorer_judge_url}"
    if pods.labels.get(ROLE) == "judge" and ("--enable-lora" in options or LORA in variables):
        yield "a judge loads adapters: nobody gives it any"


def _adapters(agent: AgentSettings, options: Mapping[str, str], variables: Mapping[str, str]) -> Iterator[str]:
    if "--enable-lora" not in options or variables.get(LORA) != "True":
        yield f"it takes no adapters while it runs: --enable-lora, and {LORA}=True"
    if options.get("--max-loras") != str(agent.agent_max_adapters):
        yield f"it holds {options.get('--max-loras')} adapters; its agent keeps {agent.agent_max_adapters} loaded"
    if options.get("--max-cpu-loras") != str(2 * agent.agent_max_adapters):
        yield f"it keeps {options.get('--max-cpu-loras')} adapters in memory: twice as many as its agent loads"
    rank = options.get("--max-lora-rank", "0")
    if int(rank) not in RANKS or int(rank) < agent.adapter_max_rank:
        yield f"--max-lora-rank is {rank}: one of {RANKS}, and no less than {agent.adapter_max_rank}"
