"""The network: closed by default, open at both ends where something must flow, to every address a process is told."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.checks.cluster import ROLE, Cluster, Pods

ADDRESS = re.compile(r"\b(?:amqp|http)://(?:[^/\s@]+@)?([a-z0-9.-]+):(\d+)")
HERE = ("127.0.0.1", "localhost")
FREE_PORTS = (1024, 65535)
"""Ports that pods which compute together may take."""
NOT_ASKED = ("setup", "RATCHET_MANAGER_URL")
"""A role that only has to know that there is one."""


def nothing_is_allowed_by_default(cluster: Cluster) -> Iterator[str]:
    """one policy closes every pod in both directions, and each pod has one that opens what it needs"""
    specs = [policy.content["spec"] for policy in cluster.all("NetworkPolicy")]
    closing = [spec for spec in specs if not spec["podSelector"].get("matchLabels")]
    both = {"Ingress", "Egress"}
    if not any(
        both <= set(spec["policyTypes"]) and not spec.get("ingress") and not spec.get("egress") for spec in closing
    ):
        yield "no NetworkPolicy closes all pods in both directions"
    for policy in cluster.all("NetworkPolicy"):
        spec = policy.content["spec"]
        labels = spec["podSelector"].get("matchLabels", {})
        if set(spec["policyTypes"]) != both:
            yield f"{policy} speaks of {spec['policyTypes']}: rules of another direction do not count"
        owners = {pods.owner.name for pods in cluster.select(labels)}
        if labels and len(owners) != 1:
            yield f"{policy} is for {labels}: the pods of {len(owners)} controllers, not of one"
        for rule in (*spec.get("ingress", []), *spec.get("egress", [])):
            if not _peers(rule) or not rule.get("ports"):
                yield f"{policy} has a rule for anybody, or for any port"
            peers = [peer["podSelector"]["matchLabels"] for peer in _peers(rule) if "podSelector" in peer]
            yield from (f"{policy} has a rule for {one}, which nobody is" for one in peers if not cluster.select(one))
    yield from (f"{pods} has no NetworkPolicy of its own" for pods in cluster.pods if not policies(cluster, pods))


def _peers(rule: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*rule.get("from", []), *rule.get("to", [])]


def flows_are_open_at_both_ends(cluster: Cluster) -> Iterator[str]:
    """what one pod may send another may receive, and the other way round; the port is one it listens on"""
    out, into = set(flows_out(cluster)), set(flows_in(cluster))
    yield from (f"{flow} may be sent, but not received" for flow in sorted(map(str, out - into)))
    yield from (f"{flow} may be received, but not sent" for flow in sorted(map(str, into - out)))
    for pods in cluster.pods:
        for port in sorted(_open_ports(cluster, pods)) if not pods.works_for_a_leader else ():
            if port not in pods.ports.values():
                yield f"{pods} is opened at port {port}, where nothing listens"


def addresses_can_be_reached(cluster: Cluster) -> Iterator[str]:
    """each URL a process is told names a Service and a port of it, and the network lets it through"""
    flows = {(flow.source, flow.target, flow.port) for flow in flows_out(cluster)}
    for pods in cluster.pods:
        for box in pods.containers:
            for name, value in cluster.environment(pods, box):
                for host, port in ADDRESS.findall(value) if (pods.labels.get(ROLE), name) != NOT_ASKED else ():
                    if host in HERE:
                        yield from _beside(pods, name, int(port))
                    else:
                        yield from _address_faults(cluster, pods, name, host, int(port), flows)


def _beside(pods: Pods, variable: str, port: int) -> Iterator[str]:
    if port not in pods.ports.values():
        yield f"{pods}: {variable} names port {port} of the pod itself, where nothing listens"


def _address_faults(
    cluster: Cluster, pods: Pods, variable: str, host: str, port: int, flows: set[tuple[str, str, int]]
) -> Iterator[str]:
    name, _, rest = host.partition(".")
    service = cluster.get("Service", name)
    namespace = cluster.all("Namespace")[0].name
    if service is None or (rest and rest.split(".")[0] != namespace):
        yield f"{pods}: {variable} names {host}, which is no Service here"
        return
    if port not in {one["port"] for one in service.content["spec"]["ports"]}:
        yield f"{pods}: {variable} names port {port} of {service}, which it does not have"
    targets = cluster.select(service.content["spec"]["selector"])
    if not any((str(pods), str(target), port) in flows for target in targets):
        yield f"{pods}: {variable} names {host}:{port}, but no NetworkPolicy lets it through"


@dataclass(frozen=True, slots=True)
class Flow:
    source: str
    target: str
    port: int

    def __str__(self) -> str:
        return f"{self.source} → {self.target}:{self.port}"


def flows_out(cluster: Cluster) -> Iterator[Flow]:
    """Flows that egress rules allow, inside the namespace."""
    for pods in cluster.pods:
        for peer, port in _rules(cluster, pods, "egress", "to"):
            yield from (Flow(str(pods), str(target), port) for target in cluster.select(peer))


def flows_in(cluster: Cluster) -> Iterator[Flow]:
    for pods in cluster.pods:
        for peer, port in _rules(cluster, pods, "ingress", "from"):
            yield from (Flow(str(source), str(pods), port) for source in cluster.select(peer))


def _open_ports(cluster: Cluster, pods: Pods) -> set[int]:
    """Single ports; infra/checks/machines.py looks at ranges."""
    rules = [rule for policy in policies(cluster, pods) for rule in policy.get("ingress", [])]
    return {port["port"] for rule in rules for port in rule.get("ports", []) if "endPort" not in port}


def _rules(cluster: Cluster, pods: Pods, direction: str, end: str) -> Iterator[tuple[Mapping[str, str], int]]:
    """Labels of peers in this namespace, and the port."""
    for policy in policies(cluster, pods):
        for rule in policy.get(direction, []):
            for peer in rule.get(end, []):
                if "podSelector" in peer and "namespaceSelector" not in peer:
                    yield from ((peer["podSelector"].get("matchLabels", {}), p["port"]) for p in rule.get("ports", []))


def policies(cluster: Cluster, pods: Pods) -> list[dict[str, Any]]:
    """Return the policies that select these pods."""
    specs = [policy.content["spec"] for policy in cluster.all("NetworkPolicy")]
    found = []
    for spec in specs:
        labels = spec["podSelector"].get("matchLabels", {})
        if labels and labels.items() <= pods.labels.items():
            found.append(spec)
    return found
