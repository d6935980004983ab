"""The settings of a stack: one typed object under `ratchet:fleet` in `Pulumi.<stack>.yaml`.

Unknown keys and wrong types are refused before anything is changed. Passwords are not settings: they are made by the
stack and kept, encrypted, in its state.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import pulumi
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel


class Autoscaling(StrEnum):
    KEDA = "keda"
    """Scale by the depth of the queues; the trainer is a job for each request. KEDA must be installed."""
    HPA = "hpa"
    """Scale by CPU what runs on no GPU; the trainer is always there."""


UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def gigabytes(size: str) -> float:
    """Convert a size as Kubernetes writes it, such as `50Gi`, to gigabytes of 10⁹ bytes."""
    number = size.rstrip("".join(UNITS))
    return float(number) * UNITS.get(size[len(number) :], 1) / 1e9


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Images(_Model):
    registry: str = Field(description="Where the fleet's images are: <registry>/ratchet-<service>:<tag>.")
    tag: str = Field(description="The release; never `latest`, or a rollback would roll back nothing.")
    digests: dict[str, str] = Field(
        default_factory=dict, description="sha256:… by image, such as `agent` or `trainer-cuda`: exactly that build."
    )
    rabbitmq: str = "docker.io/library/rabbitmq:4.1.4-management"
    vllm: str = "docker.io/vllm/vllm-openai:v0.32.0"
    pull_secret: str | None = Field(None, description="Name of a Secret for a private registry, made beforehand.")


class Resources(_Model):
    """Requests; memory is also the limit. CPU has no limit: throttling helps nobody."""

    cpu: str = "500m"
    memory: str = "512Mi"
    gpus: int = Field(0, ge=0)


class Toleration(_Model):
    key: str
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class GpuNodes(_Model):
    """The nodes for pods that ask for GPUs."""

    resource: str = "nvidia.com/gpu"
    node_selector: dict[str, str] = Field(default_factory=lambda: {"nvidia.com/gpu.present": "true"})
    tolerations: tuple[Toleration, ...] = (Toleration(key="nvidia.com/gpu"),)


class Storage(_Model):
    class_name: str | None = Field(
        None, description="Storage class of the shared claims; the cluster's default if not."
    )
    access_mode: Literal["ReadWriteMany", "ReadWriteOnce"] = Field(
        "ReadWriteMany", description="ReadWriteOnce only on a cluster of one node. flock must hold: NFS 4, CephFS, EFS."
    )
    index: str = Field(
        "10Gi",
        description="Room for the index on the node of each orchestrator: about a tenth of what the logs may take.",
    )
    logs: str = "50Gi"
    adapters: str = "20Gi"
    models: str = "100Gi"
    audit: str = "5Gi"
    rollouts: str = Field("5Gi", description="Finished rollouts of tasks that are not answered yet; with a runner.")
    environments: str = Field("20Gi", description="What programs require, and their images, unpacked; with a runner.")


class Broker(_Model):
    nodes: Literal[1, 3, 5] = Field(3, description="Quorum queues survive the loss of fewer than half of them.")
    storage: str = "20Gi"
    storage_class: str | None = None
    rotation: str = Field("1", description="Change it, and every user of the broker gets a new password.")
    resources: Resources = Resources(cpu="1", memory="2Gi")


class Agent(_Model):
    """An agent of the fleet. A replica with the engine `vllm` has a vLLM server of its own beside it."""

    id: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$")
    engine: Literal["transformers", "vllm", "echo"] = "transformers"
    model: str = Field("/models/small", description="A folder of the models claim, or a hub name.")
    min_replicas: int = Field(
        1, ge=1, description="Never 0: a candidate is validated by the replicas there are; with none it is rejected."
    )
    max_replicas: int = Field(1, ge=1)
    tasks_per_replica: int = Field(32, ge=1, description="Waiting and running tasks for which one more replica starts.")
    generation_timeout_s: int = Field(120, ge=1, description="Seconds one task may take; a drain waits longer.")
    max_adapters: int = Field(4, ge=1)
    resources: Resources = Resources(cpu="1", memory="2Gi")
    server: Resources = Field(Resources(cpu="4", memory="32Gi", gpus=1), description="The vLLM server beside it.")
    server_args: tuple[str, ...] = Field((), description="More arguments of the vLLM server.")


class Scorer(_Model):
    strategy: str = Field(
        "verifier:normalised", description="`likelihood` takes an image built with the extra of that name."
    )
    model: str = Field("/models/judge", description="For the strategy likelihood: the bigger model.")
    min_replicas: int = Field(0, ge=0, description="0: none runs while nothing waits to be scored (KEDA only).")
    max_replicas: int = Field(4, ge=1)
    responses_per_replica: int = Field(256, ge=1)
    cache: str = Field("5Gi", description="Room on the node for fetched workspaces, where the strategy runs code.")
    judge_url: str | None = Field(
        None,
        pattern=r"^https://[a-z0-9.-]+(:\d+)?/\S*$",
        description="OpenAI-compatible judge outside the cluster, with /v1; the fleet's judge if not.",
    )
    judge_model: str | None = Field(None, description="The model's name on that server.")
    judge_key_secret: str | None = Field(
        None, description="Name of a Secret, made beforehand, whose key `api_key` is the key of that server."
    )
    resources: Resources = Resources(cpu="500m", memory="512Mi")

    @property
    def judge_port(self) -> int | None:
        """The port of the judge outside the cluster; None where there is none."""
        return (urlsplit(self.judge_url).port or 443) if self.judge_url else None


TENSOR_RANKS = re.compile(r"--tensor-parallel-size[ =](\d+)")
PIPELINE_RANKS = re.compile(r"--pipeline-parallel-size[ =](\d+)")
RUNS_CODE = re.compile(r"\b(tests|style|security|efficiency)\b")
"""Strategies of a scorer that run, or read with a tool, what an answer is: they need a sandbox."""


class Sandbox(_Model):
    """The isolation of the pods whose runners or scorers run code in sandboxes."""

    isolation: Literal["pod", "gvisor"] = Field(
        "pod", description="pod: bubblewrap in a pod under a seccomp profile of ours. gvisor: in one of a RuntimeClass."
    )
    seccomp_profile: str = Field(
        "profiles/ratchet-sandbox.json",
        description="infra/sandbox/docker-seccomp.json below the kubelet's folder of profiles, on each node; with pod.",
    )
    apparmor_profile: str | None = Field(
        None,
        description="Name of infra/sandbox/apparmor-container where nodes have AppArmor: ratchet-sandbox; with pod.",
    )
    runtime_class: str = Field("gvisor", description="Of gVisor, made beforehand; with gvisor.")


def _agents_of(text: str) -> str:
    programs_by_agent(text)
    return text


def programs_by_agent(text: str) -> dict[str, Any]:
    """Return the file's table of agents; the runner reads the programs. Raises ValueError if it names no agent."""
    agents = tomllib.loads(text).get("agents")
    if not isinstance(agents, dict) or not agents:
        raise ValueError("it names no agent: [agents.small] with programs = [...]")
    return agents


class Runner(_Model):
    """Programs that answer the tasks of agents, each run in a sandbox."""

    programs: Annotated[str, AfterValidator(_agents_of)] | None = Field(
        None,
        description="The file that declares them (docs/runner.md), as text; folders that it binds by their whole path. "
        "Without it programs are registered with the manager alone, for every agent.",
    )
    image: str | None = Field(
        None, description="An image made from the fleet's own, with the programs in it; the fleet's own if not."
    )
    folder: str | None = Field(
        None, description="Name of a claim, made beforehand, with what programs bind: seen read-only as /programs."
    )
    package_access: bool = Field(
        False,
        description="What programs require comes from a package index: port 443 outside the cluster is opened to the "
        "job that installs it, and to nobody else.",
    )
    runs_at_once: int = Field(4, ge=1, le=256, description="Sandboxes of one replica at once.")
    min_replicas: int = Field(
        1, ge=1, description="Never 0: an agent whose tasks nobody takes could not be told from one that has none."
    )
    max_replicas: int = Field(4, ge=1)
    tasks_per_replica: int = Field(4, ge=1, description="Waiting and running tasks for which one more replica starts.")
    drain_s: int = Field(
        300, ge=1, description="Seconds that runs get to end where a replica goes; what is cut off is run again."
    )
    cache: str = Field("5Gi", description="Room on the node for fetched workspaces.")
    resources: Resources = Resources(cpu="2", memory="6Gi")

    @property
    def agents(self) -> tuple[str, ...]:
        """Agents that the file names; none without it."""
        return tuple(programs_by_agent(self.programs)) if self.programs else ()


class Database(_Model):
    """A PostgreSQL that the site has, for the manager: none is made here."""

    url_secret: str = Field(
        description="Name of a Secret, made beforehand, whose key `url` is postgresql://user:password@host/name."
    )
    port: int = Field(5432, ge=1, le=65535)
    namespace: str | None = Field(None, description="Where its pods run, if they are in this cluster.")
    cidr: str | None = Field(
        None, pattern=r"^[0-9.]+/[0-9]+$", description="Its addresses, if it is outside: 10.3.0.0/24."
    )

    @model_validator(mode="after")
    def _is_somewhere(self) -> Self:
        if (self.namespace is None) is (self.cidr is None):
            raise ValueError("the manager's database is in a namespace of the cluster, or at a cidr: name one of both")
        return self


class Manager(_Model):
    """Takes jobs. Its replicas share a database; one of them releases tasks, and another takes over."""

    database: Database
    prices: str | None = Field(None, description="The file of prices (docs/manager.md), as text.")
    min_replicas: int = Field(2, ge=1)
    max_replicas: int = Field(4, ge=1)
    resources: Resources = Resources(cpu="500m", memory="512Mi")


class Auditor(Scorer):
    """A second scorer, that never teaches: the scorer's image on queues of its own."""

    strategy: str = Field(description="As the scorer's: `verifier:exact`, `judge:absolute` …")
    min_replicas: int = Field(1, ge=0)
    max_replicas: int = Field(1, ge=1)


class Judge(_Model):
    """A big model on a vLLM server, for a scorer with the strategy `judge`. Never 0: it takes minutes to load."""

    model: str
    replicas: int = Field(1, ge=1)
    machines: int = Field(
        1, ge=1, le=64, description="Pods that each replica is spread over; above 1 LeaderWorkerSet must be installed."
    )
    resources: Resources = Field(Resources(cpu="8", memory="96Gi", gpus=2), description="Of each of its pods.")
    server_args: tuple[str, ...] = ()


class Trainer(_Model):
    device: Literal["cpu", "cuda"] = "cpu"
    model: str = Field("/models/small", description="The agents' base model, or one by agent: small=…,coder=….")
    resources: Resources = Field(Resources(cpu="2", memory="8Gi"), description="Of each of its pods.")
    machines: int = Field(
        1, ge=1, le=64, description="Pods that one training is spread over; above 1 with KEDA and Kubernetes 1.31."
    )
    fsdp: bool = Field(False, description="Spread the base model over the GPUs, where one can't hold it.")
    deadline_s: int = Field(12 * 3600, ge=60, description="Seconds after which a training job is ended.")
    max_jobs: int = Field(
        1, ge=1, le=64, description="Trainings at once, of an agent always one: jobs with KEDA, else processes."
    )


class Objectives(_Model):
    """Objectives of what users get; alerts fire where more is missed. For shares below 0.95 none could."""

    availability: float = Field(0.99, ge=0.95, lt=1, description="Share of the tasks that is to be answered.")
    latency: float = Field(0.95, ge=0.95, lt=1, description="Share of the answers that is to come in time.")
    latency_s: float = Field(300, ge=0, description="Seconds that are in time; 0: there is no such objective.")


class Orchestrator(_Model):
    objectives: Objectives = Objectives()
    log_keep_gb: float | None = Field(
        None, ge=0, description="Room for both logs, in GB; 0: no bound. Four fifths of the logs' claim if not."
    )
    train_after_groups: int = Field(0, ge=0, description="Train after so many new groups; 0: only when asked.")
    resources: Resources = Resources(cpu="1", memory="1Gi")


class PublicKey(_Model):
    """An Ed25519 key as a JSON Web Key, public half only: of another issuer, or of this one before a rotation."""

    kty: Literal["OKP"] = "OKP"
    crv: Literal["Ed25519"] = "Ed25519"
    x: str = Field(pattern=r"^[A-Za-z0-9_-]{43}$")
    kid: str = Field(min_length=1)
    use: Literal["sig"] = "sig"
    alg: Literal["EdDSA"] = "EdDSA"


class Revoked(_Model):
    token_id: str = Field(pattern=r"^\S+$", description="Its `jti`.")
    expires_at: int = Field(description="Its `exp`, in seconds since 1970.")


class Ingress(_Model):
    """The way in for people and programs outside the cluster. The site's ingress controller ends TLS."""

    host: str
    tls_secret: str = Field(description="Name of a Secret with the host's certificate, made beforehand.")
    class_name: str | None = Field(None, description="The cluster's default class if not.")
    controller_namespace: str = Field("ingress-nginx", description="Where the controller's pods run.")
    annotations: dict[str, str] = Field(
        default_factory=lambda: {
            "nginx.ingress.kubernetes.io/proxy-buffering": "off",
            "nginx.ingress.kubernetes.io/proxy-read-timeout": "700",
        },
        description="For the controller: events must not be buffered, and a task may be waited for 600 s.",
    )


class Api(_Model):
    """Access to the API. The stack makes the key that signs tokens, as it makes passwords."""

    rotation: str = Field("1", description="Change it for a new key; tokens of the old one then end, unless trusted.")
    trusted_keys: tuple[PublicKey, ...] = Field((), description="Tokens signed with these are taken too.")
    revoked: tuple[Revoked, ...] = Field((), description="Tokens that are refused before they expire.")
    ingress: Ingress | None = Field(None, description="Without it the API is reached from inside the cluster only.")
    resources: Resources = Resources(cpu="100m", memory="128Mi")


class ApiServer(_Model):
    """The API server of Kubernetes as pods reach it: a Lease there says which orchestrator leads."""

    cidrs: tuple[str, ...] = Field(
        min_length=1, description="Its addresses, such as 10.0.0.5/32: `kubectl get endpointslices -n default`."
    )
    port: int = Field(6443, ge=1, le=65535)


class Quota(_Model):
    """The most that the namespace may ask for, all pods together. CPU has no limit here, so none is set on limits."""

    cpu: str
    memory: str
    gpus: int = Field(0, ge=0)
    pods: int = Field(100, ge=1)


class Scheduling(_Model):
    priorities: bool = Field(
        False, description="Classes of priority: trainings give way to what serves. They are objects of the cluster."
    )
    queue: str | None = Field(
        None, description="Name of a LocalQueue of Kueue's, made beforehand: trainings wait there for their GPUs."
    )
    quota: Quota | None = None


class Backups(_Model):
    """A backup of the running fleet by the clock."""

    schedule: str = Field("17 2 * * *", pattern=r"^\S+( \S+){4}$", description="When, in UTC, as cron writes it.")
    claim: str = Field(description="Name of a claim, made beforehand, best on another storage than the fleet's own.")
    keep: int = Field(7, ge=1, description="Newest backups that are kept.")
    key_secret: str | None = Field(
        None,
        description="Name of a Secret, made beforehand, whose `key` backups are encrypted with: 32 bytes in base64. "
        "Without it the key that signs decisions is in no backup.",
    )


class Monitoring(_Model):
    """ServiceMonitors, alert rules and dashboards; the Prometheus operator must be installed."""

    runbooks: str = Field(
        pattern=r"^https?://[^\s#]+$",
        description="Where people read docs/operations.md, such as its page of the site that `make docs` makes: alerts "
        "link to its sections.",
    )
    namespace: str = "monitoring"
    release_label: str = Field("kube-prometheus-stack", description="Value of the label `release` it selects by.")


def _judges(settings: StackSettings) -> Iterator[str]:
    asks = [("scorer", settings.scorer), *([("auditor", settings.auditor)] if settings.auditor else [])]
    for name, one in asks:
        if "judge" in one.strategy and settings.judge is None and one.judge_url is None:
            yield f"the {name}'s strategy is {one.strategy!r}, but no judge is configured: add one, or {name}.judgeUrl"
        if one.judge_url and "judge" not in one.strategy:
            yield f"{name}.judgeUrl is given, but its strategy {one.strategy!r} asks no judge: leave it out"
        if one.judge_url and one.judge_model is None:
            yield f"{name}.judgeUrl is given without {name}.judgeModel: name the model on that server"
        if one.judge_key_secret and one.judge_url is None:
            yield f"{name}.judgeKeySecret is given without {name}.judgeUrl: the fleet's judge asks for no key"
    if settings.judge and all(one.judge_url for _, one in asks if "judge" in one.strategy):
        yield "nobody asks the judge of this stack, and its GPUs would be held for nothing: leave `judge` out"


def _gpus(settings: StackSettings) -> Iterator[str]:
    if settings.trainer.device == "cuda" and settings.trainer.resources.gpus == 0:
        yield "trainer.device is cuda, but trainer.resources.gpus is 0: ask for a GPU, or train on the cpu"
    if settings.trainer.device == "cpu" and settings.trainer.resources.gpus > 0:
        yield "trainer.resources.gpus is given, but trainer.device is cpu: the GPUs would be held for nothing"
    servers = [(f"agent {a.id}'s server", a.server, a.server_args, 1) for a in settings.agents if a.engine == "vllm"]
    if (judge := settings.judge) is not None:
        servers.append(("the judge", judge.resources, judge.server_args, judge.machines))
    for name, resources, args, machines in servers:
        if resources.gpus == 0:
            yield f"{name} has no GPU, and vLLM's image runs on none: set its resources.gpus"
        ranks, there = ranks_of(args, resources.gpus, machines), resources.gpus * machines
        if ranks > there:
            yield f"{name} splits its model over {ranks} GPUs (serverArgs), but has {there}: ask for more"
        if ranks < there:
            yield f"{name} splits its model over {ranks} GPUs (serverArgs) and holds {there}: ask for fewer"


def ranks_of(server_args: tuple[str, ...], gpus: int, machines: int) -> int:
    """Return over how many GPUs a vLLM server splits its model: within each pod by tensor, over the pods by layers."""
    text = " ".join(server_args)
    tensor, pipeline = TENSOR_RANKS.search(text), PIPELINE_RANKS.search(text)
    return (int(tensor[1]) if tensor else max(1, gpus)) * (int(pipeline[1]) if pipeline else machines)


def _machines(settings: StackSettings) -> Iterator[str]:
    several = {"trainer": settings.trainer.machines, "judge": settings.judge.machines if settings.judge else 1}
    if several["trainer"] > 1 and settings.autoscaling is not Autoscaling.KEDA:
        yield "trainer.machines is more than 1, but autoscaling is hpa, where no training is a job: use keda, or one"
    for name, machines in several.items():
        if machines > 1 and settings.storage.access_mode != "ReadWriteMany":
            yield (
                f"{name}.machines is {machines}, but storage.accessMode is {settings.storage.access_mode}, and all "
                f"its pods share claims: name a class for ReadWriteMany, or one machine"
            )


def _models(settings: StackSettings) -> Iterator[str]:
    named = {f"agent {one.id}": one.model for one in settings.agents if one.engine != "echo"}
    named |= {"the judge": settings.judge.model} if settings.judge else {}
    from_hub = [f"{who} ({model})" for who, model in named.items() if not model.startswith("/")]
    if from_hub and not settings.hub_access:
        yield f"{from_hub[0]} has a model of a hub, but hubAccess is false: set it, or name a folder such as /models/x"
    trained = settings.trainer.model
    by_agent = dict(pair.split("=", 1) for pair in trained.split(",") if "=" in pair)
    for one in settings.agents:
        base = by_agent.get(one.id) if "=" in trained else trained
        if one.engine != "echo" and base != one.model:
            yield f"trainer.model for agent {one.id} is {base}, but it runs {one.model}: no adapter would fit"


def _queues(settings: StackSettings) -> Iterator[str]:
    if settings.scheduling.queue and settings.autoscaling is not Autoscaling.KEDA:
        yield "scheduling.queue is given, but autoscaling is hpa, where no training is a job: leave it out, or use keda"


def _disks(settings: StackSettings) -> Iterator[str]:
    keep, room = settings.orchestrator.log_keep_gb, gigabytes(settings.storage.logs)
    if keep is not None and (keep == 0 or keep * settings.shards > room):
        yield f"orchestrator.logKeepGb is {keep:g}, but storage.logs has {room:g} GB: the disk would fill; name less"
    if settings.storage.access_mode == "ReadWriteOnce" and settings.broker.nodes > 1:
        yield (
            f"storage.accessMode is ReadWriteOnce, for a cluster of one node, but broker.nodes is "
            f"{settings.broker.nodes}: name a class for ReadWriteMany, or one broker node"
        )


def _shards(settings: StackSettings) -> Iterator[str]:
    there = {
        "a runner": settings.runner,
        "an auditor": settings.auditor,
        "an external scorer": settings.external_scorer,
        "backups": settings.backups,
        "a manager": settings.manager,
    }
    if settings.shards > 1 and (strange := [name for name, given in there.items() if given]):
        yield f"shards is {settings.shards}, and several fleets can't have {strange[0]} yet: leave out one of the two"
    if settings.shards > 1 and any(re.search(r"-\d+$", agent.id) for agent in settings.agents):
        yield "the id of an agent ends with a number, as the names of shards do: give it another"


class StackSettings(_Model):
    namespace: str = "ratchet"
    queue_namespace: str = Field(
        "",
        pattern=r"^[a-z0-9.-]{0,40}$",
        description="Prefix of every queue, exchange and user on the broker: RATCHET_NAMESPACE of all, clients too.",
    )
    shards: int = Field(
        1, ge=1, le=16, description="Fleets on the broker that decide as one (docs/scale.md); each has its own agents."
    )
    images: Images
    autoscaling: Autoscaling = Autoscaling.KEDA
    keda_namespace: str = "keda"
    client_namespaces: tuple[str, ...] = Field(
        (), description="Namespaces whose pods may publish tasks, or call the API."
    )
    hub_access: bool = Field(False, description="Models come from a hub: port 443 outside the cluster is opened.")
    hub_token_secret: str | None = Field(
        None,
        description="Name of a Secret, made beforehand, whose key `hf_token` is a token of the hub, for who downloads.",
    )
    make_small_models: bool = Field(False, description="A job makes the small demonstration models first.")
    log_level: str = "INFO"
    adapter_max_rank: int = Field(64, ge=1)
    gpu_nodes: GpuNodes = GpuNodes()
    storage: Storage = Storage()
    broker: Broker = Broker()
    agents: tuple[Agent, ...] = Field(min_length=1)
    scorer: Scorer = Scorer()
    external_scorer: bool = Field(
        False, description="A scorer of another make, in one of clientNamespaces, takes the scorer's place."
    )
    auditor: Auditor | None = None
    runner: Runner | None = None
    manager: Manager | None = None
    sandbox: Sandbox = Sandbox()
    workspace_urls: tuple[str, ...] = Field(
        (),
        description="What the URLs of tasks' repositories and archives may begin with; port 443 outside the cluster is "
        "opened for runners and scorers that run code, and never for what they run.",
    )
    judge: Judge | None = None
    trainer: Trainer = Trainer()
    orchestrator: Orchestrator = Orchestrator()
    api: Api = Api()
    api_server: ApiServer | None = Field(
        None,
        description="Orchestrators lead by a Lease of Kubernetes; without it, by the file on the logs' claim.",
    )
    monitoring: Monitoring | None = None
    scheduling: Scheduling = Scheduling()
    backups: Backups | None = None

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        about = (_judges, _gpus, _machines, _models, _disks, _queues, _shards)
        if faults := [fault for faults_of in about for fault in faults_of(self)]:
            raise ValueError(faults[0])
        if self.hub_token_secret and not self.hub_access:
            raise ValueError("hubTokenSecret is given, but hubAccess is not: the hub could not be reached")
        if self.images.tag == "latest":
            raise ValueError("images.tag is `latest`: name a release, or a rollback would roll back nothing")
        if self.external_scorer and not self.client_namespaces:
            raise ValueError("externalScorer is set, but no clientNamespaces: it could not reach the broker")
        if self.runner and (strange := sorted(set(self.runner.agents) - {agent.id for agent in self.agents})):
            raise ValueError(f"runner.programs: {strange[0]!r} is no agent of this fleet")
        if self.runner and not self.runner.programs and not self.manager:
            raise ValueError("runner.programs: a runner has a file of programs, or a manager with which some register")
        names = [agent.id for agent in self.agents]
        if len(set(names)) < len(names):
            raise ValueError(f"two agents have one id: {names}")
        return self

    @classmethod
    def read(cls) -> Self:
        """Read the stack's configuration. Raises RunError that names each key at fault."""
        try:
            return cls.model_validate(pulumi.Config("ratchet").require_object("fleet"))
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'fleet'}: {e['msg']}" for e in error.errors())
            stack = pulumi.get_stack()
            raise pulumi.RunError(f"ratchet:fleet in Pulumi.{stack}.yaml can't be used: {faults}") from None


def of_shard(settings: StackSettings, number: int) -> StackSettings:
    """Return the settings of one of several fleets on the broker: the first has the queues without a number."""
    prefix = f"{settings.queue_namespace}{number}." if number else settings.queue_namespace
    return settings.model_copy(update={"queue_namespace": prefix})
