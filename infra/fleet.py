"""The fleet's own processes: what each is told, what it mounts, and how many of it there are."""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum

from infra import probes
from infra.api_keys import KEYS_AT, MOUNT, ApiKeys
from infra.broker import SETUP, Accounts
from infra.foundation import ADAPTERS, AUDIT, DECISION_KEYS, LOGS, MODELS
from infra.network import API, MANAGER_API
from infra.process import DECLARED, Backlog, Claim, Files, Kind, Mount, Port, Process, Program, Role, Scale, Scratch
from infra.settings import RUNS_CODE, Agent, Auditor, Autoscaling, Manager, Resources, Scorer, StackSettings, gigabytes
from infra.vllm import HUB_TOKEN_AT, SHARED_MEMORY, URL_BESIDE, hub_token, judge_url, server
from ratchet.bus.topology import HIGH_PRIORITY, work_queue

DRAIN_S = 60
"""The time to stop for processes that handle a message in seconds."""
LOGS_AT, ADAPTERS_AT, MODELS_AT, AUDIT_AT = "/data/logs", "/data/adapters", "/models", "/data/audit"
INDEX_AT = "/index"
"""The index, on a disk of the node: SQLite's write-ahead log works on no network file system."""
DECISION_KEYS_AT = "/data/decision-keys"
"""The folder with the key that signs decisions about adapters: only the orchestrator and the operator write there."""
HUB_CACHE = "/models/hub"
JUDGE_KEY = "api_key"
"""The key in the site's Secret under which the API key of a judge outside the cluster lies."""
WORKSPACES_AT = "/data/workspaces"
PROGRAMS, PROGRAMS_AT = "programs.toml", "/etc/ratchet/programs"
PRICES, PRICES_AT = "prices.toml", "/etc/ratchet/prices"
CLAIM_SHARE = 0.8
"""The share of its claim that a log, or kept rollouts, may take: indexes and compression need room as well."""
CUDA = "-cuda"
"""The end of an image's name where torch is built for GPUs."""


class Access(StrEnum):
    READ = "read"
    WRITE = "write"


def orchestrator(settings: StackSettings, accounts: Accounts, keys: ApiKeys) -> Process:
    """One leads and one stands by. A standby counts as ready (its /readyz is false): it is what an update replaces
    first, and what a drained node leaves the work to. Never scaled: the lease on the logs lets one work. Its index lies
    on the node, and is made from the logs where it is not there.
    """
    main = service_program("orchestrator", settings, settings.orchestrator.resources)
    files = program_files(settings)
    process = fleet_process(
        "orchestrator",
        Role.ORCHESTRATOR,
        replace(
            main,
            mounts=(
                *main.mounts,
                Mount(Claim(DECISION_KEYS), DECISION_KEYS_AT),
                Mount(Scratch("index", settings.storage.index), INDEX_AT),
                *((PROGRAMS_MOUNT,) if files else ()),
            ),
        ),
        settings,
        accounts,
        keys,
        {
            "RATCHET_INDEX_DIR": INDEX_AT,
            **({"RATCHET_LEASE": "orchestrator"} if settings.api_server else {}),
            "RATCHET_TRAIN_AFTER_GROUPS": str(settings.orchestrator.train_after_groups),
            "RATCHET_LOG_KEEP_GB": f"{_log_keep_gb(settings):g}",
            "RATCHET_DECISION_KEYS": DECISION_KEYS_AT,
            "RATCHET_OBJECTIVE_AVAILABILITY": str(settings.orchestrator.objectives.availability),
            "RATCHET_OBJECTIVE_LATENCY": str(settings.orchestrator.objectives.latency),
            "RATCHET_OBJECTIVE_LATENCY_S": str(settings.orchestrator.objectives.latency_s),
            "RATCHET_API_HOSTS": settings.api.ingress.host if settings.api.ingress else "",
            **program_settings(settings),
            **manager_url(settings),
        },
        by_pod=True,
        scale=Scale(2, 2),
        surge=False,
        spread_strictly=settings.storage.access_mode == "ReadWriteMany",
    )
    return replace(process, files=files, leads_by_lease=settings.api_server is not None)


def gateway(settings: StackSettings) -> Process:
    """The API at one address, whichever orchestrator leads: to Kubernetes the standby is ready, but it answers 503."""
    orchestrators = f"orchestrator-nodes:{API}"
    return Process(
        name="gateway",
        role=Role.GATEWAY,
        main=Program(
            name="relay",
            image=image_name("gateway", settings),
            resources=settings.api.resources,
            ports=(Port("http", API),),
            args=(str(API), orchestrators),
            startup=probes.tcp("http", every_s=2, failures=60),
            liveness=probes.tcp("http"),
            readiness=probes.tcp("http"),
        ),
        drain_s=5,
        scale=Scale(2, 2),
        metrics=None,
    )


def agent(wanted: Agent, settings: StackSettings, accounts: Accounts, keys: ApiKeys) -> Process:
    """Make an agent, with vLLM one server for each replica: the list of loaded adapters is a server's own."""
    with_vllm = wanted.engine == "vllm"
    on_gpu = with_vllm or wanted.resources.gpus > 0
    environment = {
        "RATCHET_AGENT_ID": wanted.id,
        "RATCHET_AGENT_ENGINE": wanted.engine,
        "RATCHET_AGENT_MODEL": wanted.model,
        "RATCHET_AGENT_MAX_ADAPTERS": str(wanted.max_adapters),
        "RATCHET_AGENT_PREFETCH": str(wanted.tasks_per_replica),
        "RATCHET_AGENT_GENERATION_TIMEOUT_S": str(wanted.generation_timeout_s),
    }
    if with_vllm:
        environment |= {"RATCHET_AGENT_VLLM_URL": URL_BESIDE, "RATCHET_AGENT_TOKENIZER": wanted.model}
    main = service_program(
        "agent",
        settings,
        wanted.resources,
        variant=CUDA if wanted.resources.gpus else "",
        models=_models_access(settings),
    )
    environment |= program_settings(settings)
    files = program_files(settings)
    if files:
        main = replace(main, mounts=(*main.mounts, PROGRAMS_MOUNT))
    return replace(
        fleet_process(
            f"agent-{wanted.id}",
            Role.AGENT,
            main,
            settings,
            accounts,
            keys,
            environment,
            scale=Scale(
                wanted.min_replicas,
                wanted.max_replicas,
                Backlog(work_queues(wanted.id), wanted.tasks_per_replica, settings.queue_namespace),
                by_cpu=not on_gpu,
            ),
            drain_s=wanted.generation_timeout_s + DRAIN_S,
            surge=not on_gpu,
        ),
        files=files,
        beside=_lora_server(wanted, settings, main) if with_vllm else None,
    )


def _lora_server(wanted: Agent, settings: StackSettings, main: Program) -> Program:
    """Make the vLLM of an agent. Both have the adapters at the same path, because the agent names paths to it."""
    lora = ("--enable-lora", "--max-loras", str(wanted.max_adapters), "--max-lora-rank", str(settings.adapter_max_rank))
    return server(
        settings.images.vllm,
        wanted.model,
        wanted.server,
        (*lora, "--max-cpu-loras", str(2 * wanted.max_adapters), *wanted.server_args),
        mounts=tuple(mount for mount in main.mounts if mount.source not in (Claim(AUDIT), Files())),
        environment={"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"} | hub_token(settings)[1],
    )


def scorer(settings: StackSettings, accounts: Accounts, keys: ApiKeys) -> Process:
    wanted = settings.scorer
    return _scoring("scorer", wanted, "responses", {"RATCHET_SCORER": wanted.strategy}, settings, accounts, keys)


def _judge_outside(name: str, wanted: Scorer) -> dict[str, str]:
    """Return what a scorer is told of a judge outside the cluster; its key is a Secret of the site."""
    told = {"URL": wanted.judge_url, "MODEL": wanted.judge_model}
    return {f"RATCHET_{name.upper()}_JUDGE_{part}": value for part, value in told.items() if value}


def _judge_key(name: str, wanted: Scorer) -> dict[str, tuple[str, str]]:
    return (
        {f"RATCHET_{name.upper()}_JUDGE_API_KEY": (wanted.judge_key_secret, JUDGE_KEY)}
        if wanted.judge_key_secret
        else {}
    )


def auditor(wanted: Auditor, settings: StackSettings, accounts: Accounts, keys: ApiKeys) -> Process:
    """The scorer's own process on queues of its own."""
    return _scoring("auditor", wanted, "audits", {"RATCHET_SCORER_AUDITS": "true"}, settings, accounts, keys)


def _scoring(
    name: str,
    wanted: Scorer,
    queue: str,
    environment: dict[str, str],
    settings: StackSettings,
    accounts: Accounts,
    keys: ApiKeys,
) -> Process:
    scores_locally = "likelihood" in wanted.strategy
    if scores_locally:
        environment["RATCHET_SCORER_LIKELIHOOD_MODEL"] = wanted.model
    environment |= _judge_outside(name, wanted)
    if settings.judge and not wanted.judge_url:
        environment |= {"RATCHET_SCORER_JUDGE_URL": judge_url(), "RATCHET_SCORER_JUDGE_MODEL": settings.judge.model}
    runs_code = RUNS_CODE.search(wanted.strategy) is not None
    models = (Access.READ if runs_code else _models_access(settings)) if scores_locally else None
    main = service_program("scorer", settings, wanted.resources, models=models, downloads=not runs_code)
    main = replace(main, site_secrets=_judge_key(name, wanted))
    if runs_code:
        environment |= around_sandboxes(settings)
        main = replace(main, mounts=(*main.mounts, Mount(Scratch("workspaces", wanted.cache), WORKSPACES_AT)))
    process = fleet_process(
        name,
        Role.SCORER,
        main,
        settings,
        accounts,
        keys,
        environment,
        scale=Scale(
            wanted.min_replicas,
            wanted.max_replicas,
            Backlog((queue,), wanted.responses_per_replica, settings.queue_namespace),
            by_cpu=True,
        ),
        drain_s=120,
    )
    return replace(process, sandboxes=runs_code, port_outside=wanted.judge_port)


PROGRAMS_MOUNT = Mount(Files(), PROGRAMS_AT, read_only=True)


def program_files(settings: StackSettings) -> dict[str, str]:
    return {PROGRAMS: settings.runner.programs} if settings.runner and settings.runner.programs else {}


def program_settings(settings: StackSettings) -> dict[str, str]:
    """Return the path of the programs' file for processes that read it. Agents whose tasks programs take consume none;
    the orchestrator reads which agents play the roles of programs."""
    return {"RATCHET_PROGRAMS": f"{PROGRAMS_AT}/{PROGRAMS}"} if program_files(settings) else {}


def manager_url(settings: StackSettings) -> dict[str, str]:
    """Return the manager's URL, for processes whose queues depend on registered agents."""
    return {"RATCHET_MANAGER_URL": f"http://{Role.MANAGER}:{MANAGER_API}"} if settings.manager else {}


def manager(wanted: Manager, settings: StackSettings, accounts: Accounts, keys: ApiKeys) -> Process:
    """Each replica takes calls; the one that has the database's lock releases tasks. What is kept lies there alone."""
    main = service_program("manager", settings, wanted.resources)
    files = {PRICES: wanted.prices} if wanted.prices else {}
    mounts = (Mount(Files(), PRICES_AT, read_only=True),) if files else ()
    url = {"RATCHET_MANAGER_DB": (wanted.database.url_secret, "url")}
    process = fleet_process(
        "manager",
        Role.MANAGER,
        replace(main, mounts=(*main.mounts, *mounts), site_secrets=url),
        settings,
        accounts,
        keys,
        {"RATCHET_PRICES": f"{PRICES_AT}/{PRICES}"} if files else {},
        scale=Scale(wanted.min_replicas, wanted.max_replicas, by_cpu=True),
    )
    return replace(process, files=files, database=wanted.database)


def around_sandboxes(settings: StackSettings) -> dict[str, str]:
    """Return the settings of a service that starts sandboxes."""
    urls = settings.workspace_urls
    return {
        "RATCHET_SANDBOX_ISOLATION": settings.sandbox.isolation,
        "RATCHET_WORKSPACE_CACHE": WORKSPACES_AT,
        **({"RATCHET_WORKSPACE_URLS": ",".join(urls)} if urls else {}),
        "HF_HUB_OFFLINE": "1",
    }


def _models_access(settings: StackSettings) -> Access:
    """Models of a hub are written to the claim, once; others are there already."""
    return Access.WRITE if settings.hub_access else Access.READ


MEETING = 29500
"""The port at which the pods of one training find the first of them."""
JOB_FIELDS = {
    "JOB_NAME": "metadata.labels['batch.kubernetes.io/job-name']",
    "RATCHET_TRAINER_MACHINE_RANK": "metadata.annotations['batch.kubernetes.io/job-completion-index']",
}
"""The fields of its own by which a pod of an Indexed Job knows its place in it."""


def trainer(settings: StackSettings, accounts: Accounts, keys: ApiKeys) -> Process:
    """Make the trainer: with KEDA a job for each request, so that a GPU is held only to train; else one that stays."""
    wanted = settings.trainer
    by_request = settings.autoscaling is Autoscaling.KEDA
    environment = {"RATCHET_TRAINER_MODEL": wanted.model, "RATCHET_TRAINER_DEVICE": wanted.device}
    environment["RATCHET_TRAINER_PROCESSES"] = str(max(1, wanted.resources.gpus))
    if wanted.fsdp:
        environment["RATCHET_TRAINER_FSDP"] = "true"
    variant = CUDA if wanted.device == "cuda" else ""
    main = service_program(
        "trainer",
        settings,
        wanted.resources,
        variant=variant,
        models=_models_access(settings),
    )
    if wanted.resources.gpus > 1:
        main = replace(main, mounts=(*main.mounts, SHARED_MEMORY))
    if wanted.machines > 1:
        environment["RATCHET_TRAINER_MACHINES"] = str(wanted.machines)
        meeting = f"$(JOB_NAME)-0.trainer-nodes:{MEETING}"
        main = replace(main, fields=JOB_FIELDS, environment={"RATCHET_TRAINER_MAIN_ADDRESS": meeting})
    process = fleet_process(
        "trainer",
        Role.TRAINER,
        replace(main, readiness=None) if by_request else main,
        settings,
        accounts,
        keys,
        environment
        | ({"RATCHET_TRAINER_ONCE": "true"} if by_request else {"RATCHET_TRAINER_RUNS_AT_ONCE": str(wanted.max_jobs)}),
        kind=Kind.JOB_PER_MESSAGE if by_request else Kind.SERVICE,
        scale=Scale(0, wanted.max_jobs, Backlog(("training",), 1, settings.queue_namespace))
        if by_request
        else Scale(1, 1),
        surge=False,
        drain_s=180,
        deadline_s=wanted.deadline_s if by_request else None,
    )
    return replace(process, machines=wanted.machines)


def queues(settings: StackSettings, accounts: Accounts) -> Process:
    """Declares the queues, before anybody needs them; no other user may. Runs again when the agents change."""
    return Process(
        name="queues",
        role=Role.SETUP,
        kind=Kind.ONCE,
        main=Program(
            name="setup",
            image=image_name("cli", settings),
            resources=Resources(cpu="100m", memory="256Mi"),
            args=("broker", "setup", "--timeout", "300"),
        ),
        environment=namespace_of_queues(settings)
        | {"RATCHET_AGENTS": agent_ids(settings)}
        | _shapes_of_queues(settings)
        | program_settings(settings)
        | manager_url(settings),
        secrets={"RATCHET_AMQP_URL": accounts.amqp_url(SETUP)},
        drain_s=1,
        scale=Scale(1, 1),
        metrics=None,
        deadline_s=600,
    )


def small_models(settings: StackSettings) -> Process:
    """Makes the demonstration's models, once, into the models claim."""
    return Process(
        name="small-models",
        role=Role.MODELS,
        kind=Kind.ONCE,
        main=Program(
            name="maker",
            image=image_name("agent", settings),
            resources=Resources(cpu="1", memory="2Gi"),
            command=("python", "-m", "demos.toy.make"),
            args=("make", "--out", MODELS_AT),
            mounts=(Mount(Claim(MODELS), MODELS_AT),),
        ),
        drain_s=1,
        scale=Scale(1, 1),
        metrics=None,
        deadline_s=1800,
    )


def _log_keep_gb(settings: StackSettings) -> float:
    wanted = settings.orchestrator.log_keep_gb
    return gigabytes(settings.storage.logs) * CLAIM_SHARE / settings.shards if wanted is None else wanted


def _shapes_of_queues(settings: StackSettings) -> dict[str, str]:
    """Return what the queues of a fleet depend on, besides its agents: who scores, and the disk they share."""
    disk_gb = math.floor(gigabytes(settings.broker.storage) / settings.shards * 100) / 100
    return (
        {"RATCHET_BROKER_DISK_GB": f"{disk_gb:g}"}
        | ({"RATCHET_AUDITOR": settings.auditor.strategy} if settings.auditor else {})
        | ({"RATCHET_EXTERNAL_SCORER": "true"} if settings.external_scorer else {})
    )


def namespace_of_queues(settings: StackSettings) -> dict[str, str]:
    return {"RATCHET_NAMESPACE": settings.queue_namespace} if settings.queue_namespace else {}


def work_queues(agent: str) -> tuple[str, str]:
    """Names of the queues that an agent's work waits in, the high priority last."""
    return work_queue(agent), work_queue(agent, priority=HIGH_PRIORITY)


def agent_ids(settings: StackSettings) -> str:
    return ",".join(agent.id for agent in settings.agents)


def fleet_process(
    name: str,
    role: Role,
    main: Program,
    settings: StackSettings,
    accounts: Accounts,
    keys: ApiKeys,
    environment: dict[str, str],
    *,
    scale: Scale,
    kind: Kind = Kind.SERVICE,
    drain_s: int = DRAIN_S,
    surge: bool = True,
    spread_strictly: bool = False,
    by_pod: bool = False,
    deadline_s: int | None = None,
) -> Process:
    (port,) = main.ports
    shared = {
        f"RATCHET_{main.name.upper()}_HTTP_PORT": str(port.number),
        "RATCHET_AGENTS": agent_ids(settings),
        **namespace_of_queues(settings),
        **_shapes_of_queues(settings),
        "RATCHET_DECLARE_TOPOLOGY": "false",
        "RATCHET_HTTP_HOST": "0.0.0.0",
        "RATCHET_LOGS_DIR": LOGS_AT,
        "RATCHET_ADAPTERS_DIR": ADAPTERS_AT,
        "RATCHET_API_PUBLIC_KEYS": KEYS_AT,
        "RATCHET_API_AUDIT_DIR": AUDIT_AT,
        "RATCHET_ADAPTER_MAX_RANK": str(settings.adapter_max_rank),
        "RATCHET_DRAIN_GRACE_S": str(drain_s),
        "RATCHET_LOG_LEVEL": settings.log_level,
        "HF_HOME": HUB_CACHE,
        "HF_HUB_OFFLINE": "0" if settings.hub_access else "1",
        **(hub_token(settings)[1] if HUB_TOKEN_AT in {mount.path for mount in main.mounts} else {}),
    }
    return Process(
        name=name,
        role=role,
        main=replace(main, mounts=(*main.mounts, MOUNT)),
        kind=kind,
        environment=shared | environment,
        secrets={"RATCHET_AMQP_URL": accounts.amqp_url(name)},
        secret_files=keys.files,
        by_pod=by_pod,
        scale=scale,
        drain_s=drain_s,
        surge=surge,
        spread_strictly=spread_strictly,
        deadline_s=deadline_s,
    )


def service_program(
    service: str,
    settings: StackSettings,
    resources: Resources,
    *,
    variant: str = "",
    models: Access | None = None,
    downloads: bool = True,
) -> Program:
    """`downloads`: models, with the site's token of the hub."""
    declared = DECLARED[service]
    wanted = (
        (LOGS, LOGS_AT, declared["logs"]),
        (ADAPTERS, ADAPTERS_AT, declared["adapters"]),
        (MODELS, MODELS_AT, models),
        (AUDIT, AUDIT_AT, Access.WRITE),
    )
    return Program(
        name=service,
        image=image_name(service, settings, variant),
        resources=resources,
        ports=(Port("http", declared["port"]),),
        mounts=(
            *(Mount(Claim(name), path, read_only=access == Access.READ) for name, path, access in wanted if access),
            *(hub_token(settings)[0] if models and downloads else ()),
        ),
        startup=probes.starting(),
        liveness=probes.turning(),
        readiness=probes.http(f"/{declared['probe']}", "http"),
    )


def image_name(service: str, settings: StackSettings, variant: str = "") -> str:
    images = settings.images
    digest = images.digests.get(service + variant)
    return f"{images.registry}/ratchet-{service}{variant}:{images.tag}" + (f"@{digest}" if digest else "")
