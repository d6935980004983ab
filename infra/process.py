"""One kind of process of the fleet as plain values: containers, files, ports, and how many replicas.

workload.py makes Kubernetes objects of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import ProbeArgs

from infra.settings import Database, Resources

FLEET_USER = 10001
"""User and group of our containers, and of vLLM's: not root, and in no image's /etc/passwd."""
DECLARED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "ratchet/runtime/processes.json").read_text()
)
"""The fleet's processes by name; ratchet/runtime/processes.py says what each field means."""


class Role(StrEnum):
    """The part that a pod plays in the fleet: the network's flows are between roles."""

    BROKER = "broker"
    ORCHESTRATOR = "orchestrator"
    AGENT = "agent"
    SCORER = "scorer"
    RUNNER = "runner"
    MANAGER = "manager"
    TOKENS = "tokens"
    TRAINER = "trainer"
    JUDGE = "judge"
    MODELS = "models"
    SETUP = "setup"
    INSTALLER = "installer"
    GATEWAY = "gateway"
    OPERATOR = "operator"
    BACKUP = "backup"


class Kind(StrEnum):
    SERVICE = "Deployment"
    CLUSTER = "StatefulSet"
    GROUP = "LeaderWorkerSet"
    """Replicas of several pods each: the first is `main`, the others are `worker`."""
    JOB_PER_MESSAGE = "ScaledJob"
    ONCE = "Job"
    SCHEDULED = "CronJob"


@dataclass(frozen=True, slots=True)
class Port:
    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim that all processes of the fleet may share."""

    name: str


@dataclass(frozen=True, slots=True)
class SiteClaim:
    """A claim that the site made beforehand: none of the manifests here is it."""

    claim: str
    writable: bool = False

    @property
    def name(self) -> str:
        return f"site-{self.claim}"


@dataclass(frozen=True, slots=True)
class OwnDisk:
    """A disk for each replica of a cluster, kept when the replica goes."""

    name: str
    size: str
    storage_class: str | None


@dataclass(frozen=True, slots=True)
class Files:
    """The process's `files`, or its `secret_files`."""

    secret: bool = False

    @property
    def name(self) -> str:
        return "secret-files" if self.secret else "files"


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """The process's `secrets` as files, each named like its variable in small letters; the environment has none."""

    name: str = "secret-settings"


@dataclass(frozen=True, slots=True)
class SiteSecret:
    """A Secret that the site made beforehand: none of the manifests here is it."""

    secret: str

    @property
    def name(self) -> str:
        return f"site-{self.secret}"


@dataclass(frozen=True, slots=True)
class Scratch:
    """An empty folder that goes with the pod; in memory it counts against the container's limit."""

    name: str
    size: str
    in_memory: bool = False


Source = Claim | SiteClaim | OwnDisk | Files | SecretSettings | SiteSecret | Scratch


@dataclass(frozen=True, slots=True)
class Mount:
    source: Source
    path: str
    file: str | None = None
    """Only this file or folder of the source."""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Program:
    """A container. `environment` is for a sidecar; that of the process itself goes into its ConfigMap."""

    name: str
    image: str
    resources: Resources
    ports: tuple[Port, ...] = ()
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    site_secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Variables whose values are keys of Secrets that the site made beforehand: (Secret, key)."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Variables whose values are fields of the pod. `environment` may name them: `$(JOB_NAME)`."""
    mounts: tuple[Mount, ...] = ()
    startup: ProbeArgs | None = None
    liveness: ProbeArgs | None = None
    readiness: ProbeArgs | None = None
    before_stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Backlog:
    """Messages in these queues, for each of which so many one more replica is started."""

    queues: tuple[str, ...]
    per_replica: int
    prefix: str = ""
    """The queues' namespace on the broker."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of replicas: moved by KEDA with the backlog if there is one, else by CPU if `by_cpu`."""

    least: int
    most: int
    backlog: Backlog | None = None
    by_cpu: bool = False

    @property
    def fixed(self) -> bool:
        return self.least == self.most


@dataclass(frozen=True, slots=True)
class Process:
    """`drain_s` is how long it needs after SIGTERM; the pod gets more. `metrics` is the port Prometheus reads."""

    name: str
    role: Role
    main: Program
    drain_s: int
    scale: Scale
    kind: Kind = Kind.SERVICE
    beside: Program | None = None
    worker: Program | None = None
    """The containers of each pod of a group but the first."""
    machines: int = 1
    """Pods that do one piece of work together; more than one find each other by the names of a headless Service."""
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    secret_files: Mapping[str, pulumi.Output[str]] = field(default_factory=dict)
    metrics: str | None = "http"
    by_pod: bool = False
    """True: others ask each replica by itself, through a headless Service `<name>-nodes`."""
    surge: bool = True
    """False: at an update an old replica goes before a new one comes."""
    spread_strictly: bool = False
    sandboxes: bool = False
    """True: it starts sandboxes; its pod allows that alone (settings.Sandbox)."""
    leads_by_lease: bool = False
    """A Lease of Kubernetes, called as it is, says which of its pods leads."""
    database: Database | None = None
    port_outside: int | None = None
    """A port outside the cluster that it asks something at."""
    user: int = FLEET_USER
    deadline_s: int | None = None
    schedule: str | None = None
    """The times at which it runs, as cron writes them."""

    @property
    def reads_secret_files(self) -> bool:
        """True of our own processes; the broker has its one secret in the environment."""
        return any(name.startswith("RATCHET_") for name in self.secrets)

    @property
    def programs(self) -> tuple[Program, ...]:
        return tuple(program for program in (self.main, self.beside, self.worker) if program)

    @property
    def ports(self) -> tuple[Port, ...]:
        return tuple(port for program in self.programs for port in program.ports)

    @property
    def metrics_ports(self) -> tuple[str, ...]:
        """Names of the ports that Prometheus reads: the process's, and those of the vLLM beside it."""
        beside = self.beside.ports if self.beside else ()
        return (self.metrics, *(port.name for port in beside)) if self.metrics else ()

    @property
    def gpus(self) -> int:
        return sum(program.resources.gpus for program in (self.main, self.beside) if program)
