"""The table of flows between roles, from which each pod's NetworkPolicy is made. Other traffic is refused.

A flow inside the namespace opens both ends: egress of its source, ingress of its target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pulumi_kubernetes.meta.v1 import LabelSelectorArgs
from pulumi_kubernetes.networking.v1 import (
    IPBlockArgs,
    NetworkPolicyEgressRuleArgs,
    NetworkPolicyIngressRuleArgs,
    NetworkPolicyPeerArgs,
    NetworkPolicyPortArgs,
)

from infra.process import DECLARED, Process, Role
from infra.settings import Autoscaling, StackSettings

AMQP, EPMD, CLUSTERING, MANAGEMENT, BROKER_METRICS = 5672, 4369, 25672, 15672, 15692
VLLM = 8000
API, AGENT_API, SCORER_API, MANAGER_API = (
    DECLARED[name]["port"] for name in ("orchestrator", "agent", "scorer", "manager")
)
HTTPS, DNS = 443, 53
PRIVATE_RANGES = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"]
"""Closed to pods that may reach a hub: the cluster's own networks, and the cloud's metadata."""

FREE_PORTS = (1024, 65535)
"""The ports of pods that compute together: torch takes free ports, and names them to its peers."""

ROLE_LABEL = "app.kubernetes.io/component"
NAMESPACE_LABEL = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Flow:
    source: Role
    target: Role
    port: int
    last: int | None = None
    """The last of several ports."""


FLOWS = (
    Flow(Role.ORCHESTRATOR, Role.BROKER, AMQP),
    Flow(Role.AGENT, Role.BROKER, AMQP),
    Flow(Role.SCORER, Role.BROKER, AMQP),
    Flow(Role.RUNNER, Role.BROKER, AMQP),
    Flow(Role.RUNNER, Role.AGENT, AGENT_API),
    Flow(Role.RUNNER, Role.SCORER, SCORER_API),
    Flow(Role.RUNNER, Role.MANAGER, MANAGER_API),
    Flow(Role.ORCHESTRATOR, Role.MANAGER, MANAGER_API),
    Flow(Role.MANAGER, Role.BROKER, AMQP),
    Flow(Role.TRAINER, Role.BROKER, AMQP),
    Flow(Role.SETUP, Role.BROKER, AMQP),
    Flow(Role.OPERATOR, Role.BROKER, AMQP),
    Flow(Role.SCORER, Role.JUDGE, VLLM),
    Flow(Role.GATEWAY, Role.ORCHESTRATOR, API),
    Flow(Role.BROKER, Role.BROKER, EPMD),
    Flow(Role.BROKER, Role.BROKER, CLUSTERING),
    Flow(Role.TRAINER, Role.TRAINER, *FREE_PORTS),
    Flow(Role.JUDGE, Role.JUDGE, *FREE_PORTS),
)
WITHOUT_NETWORK = frozenset({Role.TOKENS, Role.MODELS, Role.INSTALLER, Role.BACKUP, Role.JUDGE})
"""Roles that ask nobody, unless they fetch something from outside or compute with peers."""
FROM_THE_HUB = frozenset({Role.AGENT, Role.TRAINER, Role.JUDGE})


def ingress(process: Process, settings: StackSettings) -> list[NetworkPolicyIngressRuleArgs]:
    inside = [
        NetworkPolicyIngressRuleArgs(from_=[_pods(flow.source)], ports=[_tcp(flow.port, flow.last)])
        for flow in FLOWS
        if flow.target is process.role and _is_used(flow, settings)
    ]
    outside = [
        NetworkPolicyIngressRuleArgs(from_=[_namespace(name)], ports=[_tcp(port)])
        for name, port in _from_other_namespaces(process, settings)
    ]
    return inside + outside


def egress(process: Process, settings: StackSettings) -> list[NetworkPolicyEgressRuleArgs]:
    rules = [
        NetworkPolicyEgressRuleArgs(to=[_pods(flow.target)], ports=[_tcp(flow.port, flow.last)])
        for flow in FLOWS
        if flow.source is process.role and _is_used(flow, settings)
    ]
    fetches = (
        (settings.hub_access and process.role in FROM_THE_HUB)
        or (settings.workspace_urls and process.sandboxes)
        or (settings.runner is not None and settings.runner.package_access and process.role is Role.INSTALLER)
    )
    if fetches or process.port_outside or process.machines > 1 or process.role not in WITHOUT_NETWORK:
        rules.append(NetworkPolicyEgressRuleArgs(to=[_namespace("kube-system")], ports=[_tcp(DNS), _udp(DNS)]))
    if (database := process.database) is not None:
        inside = _namespace(database.namespace) if database.namespace else None
        peer = inside or NetworkPolicyPeerArgs(ip_block=IPBlockArgs(cidr=database.cidr or ""))
        rules.append(NetworkPolicyEgressRuleArgs(to=[peer], ports=[_tcp(database.port)]))
    if ports := sorted({*([HTTPS] if fetches else []), *([process.port_outside] if process.port_outside else [])}):
        world = NetworkPolicyPeerArgs(ip_block=IPBlockArgs(cidr="0.0.0.0/0", except_=PRIVATE_RANGES))
        rules.append(NetworkPolicyEgressRuleArgs(to=[world], ports=[_tcp(port) for port in ports]))
    return rules


def _from_other_namespaces(process: Process, settings: StackSettings) -> Iterator[tuple[str, int]]:
    if settings.monitoring:
        yield from (
            (settings.monitoring.namespace, port.number) for port in process.ports if port.name in process.metrics_ports
        )
    if process.role is Role.GATEWAY:
        yield from ((name, API) for name in _callers(settings))
    if process.role is Role.MANAGER:
        yield from ((name, MANAGER_API) for name in _callers(settings))
    if process.role is Role.BROKER:
        yield from ((name, AMQP) for name in settings.client_namespaces)
        if settings.autoscaling is Autoscaling.KEDA:
            yield settings.keda_namespace, MANAGEMENT


def _callers(settings: StackSettings) -> tuple[str, ...]:
    way_in = settings.api.ingress
    return (*settings.client_namespaces, *((way_in.controller_namespace,) if way_in else ()))


def _is_used(flow: Flow, settings: StackSettings) -> bool:
    """A runner asks a scorer of ours; where there is an auditor only, it asks nobody. Pods of one role talk to each
    other where there are several for one piece of work."""
    if flow.last is not None:
        of_role = settings.trainer if flow.source is Role.TRAINER else settings.judge
        return of_role is not None and of_role.machines > 1
    asks_ours = flow.source is not Role.RUNNER or flow.target is not Role.SCORER or not settings.external_scorer
    return asks_ours and _exists(flow.source, settings) and _exists(flow.target, settings)


def _exists(role: Role, settings: StackSettings) -> bool:
    there = {
        Role.JUDGE: settings.judge is not None,
        Role.RUNNER: settings.runner is not None,
        Role.MANAGER: settings.manager is not None,
        Role.SCORER: not settings.external_scorer or settings.auditor is not None,
    }
    return there.get(role, True)


def _pods(role: Role) -> NetworkPolicyPeerArgs:
    return NetworkPolicyPeerArgs(pod_selector=LabelSelectorArgs(match_labels={ROLE_LABEL: role.value}))


def _namespace(name: str) -> NetworkPolicyPeerArgs:
    return NetworkPolicyPeerArgs(namespace_selector=LabelSelectorArgs(match_labels={NAMESPACE_LABEL: name}))


def _tcp(number: int, last: int | None = None) -> NetworkPolicyPortArgs:
    return NetworkPolicyPortArgs(protocol="TCP", port=number, end_port=last)


def _udp(number: int) -> NetworkPolicyPortArgs:
    return NetworkPolicyPortArgs(protocol="UDP", port=number)
