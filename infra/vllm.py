"""vLLM servers: beside an agent with LoRA adapters, and as the judge behind a Service.

Distribution is vLLM's own affair: a server with several GPUs splits its model over them (tensor parallel), and a judge
with several machines by layers over its pods (pipeline parallel), by torch and without Ray. More is `serverArgs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from infra import probes
from infra.foundation import MODELS
from infra.network import VLLM
from infra.process import Claim, Kind, Mount, Port, Process, Program, Role, Scale, Scratch, SiteSecret
from infra.settings import Judge, Resources, StackSettings

JUDGE = "judge"
URL_BESIDE = f"http://127.0.0.1:{VLLM}"
SHARED_MEMORY = Mount(Scratch("shared-memory", "8Gi", in_memory=True), "/dev/shm")
"""The mount of processes that split a model over several GPUs."""
LOADING_S = 30 * 60
DRAIN_S = 180


HUB_TOKEN_AT = "/run/hub"


def hub_token(settings: StackSettings) -> tuple[tuple[Mount, ...], dict[str, str]]:
    """Return the mounts and settings for downloading models with the site's token; both empty without one."""
    if settings.hub_token_secret is None:
        return (), {}
    return (Mount(SiteSecret(settings.hub_token_secret), HUB_TOKEN_AT, read_only=True),), {
        "HF_TOKEN_PATH": f"{HUB_TOKEN_AT}/hf_token"
    }


def judge_url() -> str:
    return f"http://{JUDGE}:{VLLM}/v1"


def server(
    image: str,
    model: str,
    resources: Resources,
    args: tuple[str, ...],
    *,
    mounts: tuple[Mount, ...],
    environment: Mapping[str, str],
) -> Program:
    """The log-probabilities logged must be those sampled from: processed ones, and no model's sampling defaults."""
    options = {
        "--model": model,
        "--served-model-name": model,
        "--port": str(VLLM),
        "--tensor-parallel-size": str(max(1, resources.gpus)),
        "--logprobs-mode": "processed_logprobs",
        "--generation-config": "vllm",
    }
    caches = {
        "HF_HOME": "/models/hub",
        "XDG_CACHE_HOME": "/tmp/cache",
        "VLLM_CACHE_ROOT": "/tmp/cache/vllm",
        "TORCHINDUCTOR_CACHE_DIR": "/tmp/cache/inductor",
        "TRITON_CACHE_DIR": "/tmp/cache/triton",
        "HOME": "/tmp",
        "USER": "vllm",
        "VLLM_NO_USAGE_STATS": "1",
    }
    return Program(
        name="vllm",
        image=image,
        resources=resources,
        ports=(Port("vllm", VLLM),),
        command=("python3", "-m", "vllm.entrypoints.openai.api_server"),
        args=(*(word for option in options.items() for word in option), *args),
        environment=caches | dict(environment),
        mounts=(*mounts, SHARED_MEMORY),
        startup=probes.http("/health", "vllm", every_s=10, failures=LOADING_S // 10),
        liveness=probes.http("/health", "vllm", every_s=30, failures=6),
        readiness=probes.http("/health", "vllm"),
    )


def _of_several(wanted: Judge) -> tuple[str, ...]:
    """Return the options of a pod of a group, which LeaderWorkerSet tells its number and its first pod's address."""
    options = {
        "--pipeline-parallel-size": str(wanted.machines),
        "--distributed-executor-backend": "mp",
        "--nnodes": str(wanted.machines),
        "--node-rank": "$(LWS_WORKER_INDEX)",
        "--master-addr": "$(LWS_LEADER_ADDRESS)",
    }
    return tuple(word for option in options.items() for word in option)


def _worker(main: Program) -> Program:
    """Return what runs in a group's other pods: they serve nobody, so they have no port, and nothing to ask."""
    model, port = main.args.index("--model"), main.args.index("--port")
    left_out = {model, model + 1, port, port + 1}
    rest = tuple(word for number, word in enumerate(main.args) if number not in left_out)
    return replace(
        main,
        command=("vllm", "serve", main.args[model + 1]),
        args=(*rest, "--headless"),
        ports=(),
        startup=None,
        liveness=None,
        readiness=None,
    )


def judge(wanted: Judge, settings: StackSettings) -> Process:
    token, environment = hub_token(settings)
    mounts = (Mount(Claim(MODELS), "/models"), *token)
    several = wanted.machines > 1
    main = server(
        settings.images.vllm,
        wanted.model,
        wanted.resources,
        (*(_of_several(wanted) if several else ()), *wanted.server_args),
        mounts=mounts,
        environment=environment,
    )
    if several:
        main = replace(main, fields={"VLLM_HOST_IP": "status.podIP"})
    return Process(
        name=JUDGE,
        role=Role.JUDGE,
        kind=Kind.GROUP if several else Kind.SERVICE,
        main=main,
        worker=_worker(main) if several else None,
        machines=wanted.machines,
        drain_s=DRAIN_S,
        scale=Scale(wanted.replicas, wanted.replicas),
        metrics="vllm",
        surge=False,
    )
