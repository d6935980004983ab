"""Selectors: each selects the pods it is meant for, and what it names by port is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.checks.cluster import Cluster, Pods
from infra.checks.declared import pages
from infra.render.manifests import Manifest

LONGEST_WAIT_S = 600
"""That a call of the API waits for a Result; a test holds it to the API."""


def controllers_select_their_pods(cluster: Cluster) -> Iterator[str]:
    """a controller selects its own pods, and nobody else's"""
    for pods in cluster.pods:
        if pods.owner.kind not in ("Deployment", "StatefulSet"):
            continue
        labels = pods.owner.content["spec"]["selector"].get("matchLabels", {})
        selected = cluster.select(labels)
        if pods not in selected:
            yield f"{pods} selects {labels}, but its pods have {dict(pods.labels)}"
        yield from (f"{pods} selects the pods of {other}, too" for other in selected if other is not pods)


def services_reach_pods(cluster: Cluster) -> Iterator[str]:
    """a Service selects pods of one kind, and each of its ports is one of theirs"""
    for service in cluster.all("Service"):
        spec = service.content["spec"]
        selected = cluster.select(spec.get("selector", {}))
        if len(selected) != 1:
            yield f"{service} selects the pods of {len(selected)} controllers ({spec.get('selector')}); not of one"
        for pods in selected:
            yield from (
                f"{service}: port {port['name']} leads to {port['targetPort']!r}, which {pods} does not have"
                for port in spec["ports"]
                if not _has(pods, port["targetPort"])
            )
            missing = set(pods.ports.values()) - {port["port"] for port in spec["ports"]}
            yield from (f"{service} does not lead to port {port} of {pods}" for port in sorted(missing))


def the_way_in_leads_somewhere(cluster: Cluster) -> Iterator[str]:
    """an Ingress has TLS for each of its hosts, and takes all paths; the manager gets those that it serves alone"""
    wanted = cluster.settings.api.ingress
    managers = {"/".join(page.split("/")[:3]) for page in pages("manager") - pages("orchestrator")}
    whole = {"/": "gateway"} | (dict.fromkeys(managers, "manager") if cluster.settings.manager else {})
    if wanted and len(cluster.all("Ingress")) != 1:
        yield f"api.ingress asks for one Ingress; there are {len(cluster.all('Ingress'))}"
    for ingress in cluster.all("Ingress"):
        spec = ingress.content["spec"]
        paths = {p["path"]: p["backend"]["service"]["name"] for rule in spec["rules"] for p in rule["http"]["paths"]}
        kinds = {p["pathType"] for rule in spec["rules"] for p in rule["http"]["paths"]}
        hosts = {rule.get("host") for rule in spec["rules"]}
        if paths != whole or kinds != {"Prefix"} or (wanted and hosts != {wanted.host}):
            yield f"{ingress} takes {paths} of {sorted(map(str, hosts))}: everything of its host"
        if wanted and (spec.get("ingressClassName"), [t.get("secretName") for t in spec.get("tls", [])]) != (
            wanted.class_name,
            [wanted.tls_secret],
        ):
            yield f"{ingress} is of class {spec.get('ingressClassName')}, with {spec.get('tls')}"
        given = ingress.content["metadata"].get("annotations") or {}
        if wanted and wanted.annotations.items() - given.items():
            yield f"{ingress} lacks annotations that its controller is to have"
        shortest = min((int(given[name]) for name in given if name.endswith("-read-timeout")), default=LONGEST_WAIT_S)
        if shortest < LONGEST_WAIT_S:
            yield f"{ingress} ends calls after {shortest} s; a task may be waited for {LONGEST_WAIT_S} s"
        secured = {host for tls in spec.get("tls", []) for host in tls.get("hosts", []) if tls.get("secretName")}
        for rule in spec["rules"]:
            if rule.get("host") not in secured:
                yield f"{ingress} takes {rule.get('host') or 'any host'} without TLS"
            for path in rule["http"]["paths"]:
                yield from _leads(cluster, ingress, path["backend"]["service"])


def _leads(cluster: Cluster, ingress: Manifest, backend: Mapping[str, Any]) -> Iterator[str]:
    service = cluster.get("Service", backend["name"])
    if service is None:
        yield f"{ingress} leads to Service {backend['name']}, which is not here"
        return
    ports = {port["name"]: port["port"] for port in service.content["spec"]["ports"]}
    if backend["port"].get("name") not in ports:
        yield f"{ingress} leads to port {backend['port']} of {service}, which has {sorted(ports)}"
        return
    if ports[backend["port"]["name"]] not in open_to_other_namespaces(cluster, service):
        yield f"{ingress} leads to {service}, but no NetworkPolicy lets an ingress controller's namespace in"


def open_to_other_namespaces(cluster: Cluster, service: Manifest) -> set[int]:
    """Ports of the pods behind it that pods of another namespace may reach."""
    found = set()
    for pods in cluster.select(service.content["spec"].get("selector", {})):
        for policy in cluster.all("NetworkPolicy"):
            spec = policy.content["spec"]
            labels = spec["podSelector"].get("matchLabels", {})
            if labels and labels.items() <= pods.labels.items():
                rules = [
                    one for one in spec.get("ingress", []) if any("namespaceSelector" in peer for peer in one["from"])
                ]
                found |= {port["port"] for rule in rules for port in rule["ports"]}
    return found


def budgets_protect_and_let_drain(cluster: Cluster) -> Iterator[str]:
    """each controller has a disruption budget that lets a node be emptied"""
    guarded: list[Pods] = []
    for budget in cluster.all("PodDisruptionBudget"):
        spec = budget.content["spec"]
        selected = cluster.select(spec["selector"].get("matchLabels", {}))
        guarded += selected
        if not selected:
            yield f"{budget} selects no pods"
        if spec.get("maxUnavailable") in (0, "0", "0%") or "minAvailable" in spec:
            yield f"{budget} may never let a pod go: a node could not be emptied. Use maxUnavailable: 1"
        elif spec.get("maxUnavailable") != 1:
            yield f"{budget} lets {spec.get('maxUnavailable')} pods go at once"
        if spec.get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            yield f"{budget} keeps a broken pod on its node: unhealthyPodEvictionPolicy is not AlwaysAllow"
    yield from (
        f"{pods} has no disruption budget"
        for pods in cluster.pods
        if pods.owner.kind in ("Deployment", "StatefulSet", "LeaderWorkerSet") and pods not in guarded
    )


def monitors_find_a_port(cluster: Cluster) -> Iterator[str]:
    """a ServiceMonitor selects one Service, and reads a port it has"""
    for monitor in cluster.all("ServiceMonitor"):
        spec = monitor.content["spec"]
        services = [s for s in cluster.all("Service") if _matches(spec["selector"], s.content["metadata"]["labels"])]
        if len(services) != 1:
            yield f"{monitor} selects {len(services)} Services, not one"
        ports = {port["name"] for service in services for port in service.content["spec"]["ports"]}
        yield from (
            f"{monitor} reads port {endpoint['port']!r}; its Service has {sorted(ports)}"
            for endpoint in spec["endpoints"]
            if endpoint["port"] not in ports
        )


def spread_counts_its_own_pods(cluster: Cluster) -> Iterator[str]:
    """what stays is spread over nodes, counting its own pods"""
    for pods in cluster.pods:
        constraints = pods.spec.get("topologySpreadConstraints", [])
        if pods.owner.kind in ("Deployment", "StatefulSet") and not constraints:
            yield f"{pods} is not spread over nodes"
        for constraint in constraints:
            labels = constraint.get("labelSelector", {}).get("matchLabels", {})
            if cluster.select(labels) != [pods]:
                yield f"{pods} is spread over {constraint['topologyKey']} by labels that are not its own: {labels}"


def _has(pods: Pods, port: Any) -> bool:
    return port in pods.ports if isinstance(port, str) else port in pods.ports.values()


def _matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Tell whether a selector matches; it may hold only the operators Exists and DoesNotExist."""
    expressions = selector.get("matchExpressions", [])
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        (expression["key"] in labels) == (expression["operator"] == "Exists") for expression in expressions
    )
