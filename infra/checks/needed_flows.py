"""The network against what is asked: who may talk to whom is exactly who has the other's address, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infra.checks.broker import PORTS
from infra.checks.cluster import ROLE, Cluster, Pods
from infra.checks.declared import our_containers
from infra.checks.flows import FREE_PORTS, HERE, NOT_ASKED, flows_out, policies

ADDRESS = re.compile(r"(?:(?:amqp|https?)://(?:[^/\s@]+@)?|^)([a-z][a-z0-9.-]*):(\d+)\b")
AMONG_BROKERS = (PORTS["epmd"], PORTS["clustering"])
PRIVATE = {"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"}
"""The cluster's own networks, and the cloud's metadata."""
NAMESPACE = "kubernetes.io/metadata.name"
DATABASE = "RATCHET_MANAGER_DB"
DNS = {("TCP", 53), ("UDP", 53)}
DASHBOARDS = Path(__file__).parents[1] / "grafana" / "dashboards"


def who_is_asked_is_reached_and_nobody_else(cluster: Cluster) -> Iterator[str]:
    """inside the namespace each allowed flow is one that a pod has an address for, or that brokers need as a cluster"""
    needed = set(_needed_flows(cluster))
    allowed = {(flow.source, flow.target, flow.port) for flow in flows_out(cluster)}
    for source, target, port in sorted(allowed - needed):
        yield f"{source} may talk to {target}:{port}, whose address it does not have"
    for source, target, port in sorted(needed - allowed):
        yield f"{source} is to talk to {target}:{port}, and may not"


def _needed_flows(cluster: Cluster) -> Iterator[tuple[str, str, int]]:
    for pods in cluster.pods:
        for host, port in _addresses(cluster, pods):
            name, _, domain = host.partition(".")
            inside = not domain or domain.endswith(".svc.cluster.local")  # judge.example.com is no Service `judge`
            service = cluster.get("Service", name) if inside else None
            for target in cluster.select(service.content["spec"]["selector"]) if service else ():
                yield from ((str(pods), str(one), port) for one in _same_role(cluster, target))
        if pods.machines > 1:
            yield str(pods), str(pods), FREE_PORTS[0]
        if pods.labels.get(ROLE) == "broker":
            yield from ((str(pods), str(pods), port) for port in AMONG_BROKERS)


def _same_role(cluster: Cluster, pods: Pods) -> list[Pods]:
    """Flows are between roles: whoever asks one scorer may ask the other."""
    return [one for one in cluster.pods if one.labels.get(ROLE) == pods.labels.get(ROLE)]


def _addresses(cluster: Cluster, pods: Pods) -> Iterator[tuple[str, int]]:
    """All of its role: an address that one of two scorers is told is open to both."""
    for one in _same_role(cluster, pods):
        for box in one.containers:
            told = [(name, value) for name, value in cluster.environment(one, box)]
            values = [value for name, value in told if (one.labels.get(ROLE), name) != NOT_ASKED]
            for text in [*values, *box.get("args", [])]:
                for part in re.split(r"[,=]", text):
                    yield from ((host, int(port)) for host, port in ADDRESS.findall(part) if host not in HERE)


def the_world_is_reached_by_whom_it_must(cluster: Cluster) -> Iterator[str]:
    """outside the namespace a pod reaches names where it has an address, and port 443 of the world where it fetches"""
    asking = {source for source, _, _ in _needed_flows(cluster)}
    for pods in cluster.pods:
        rules = [rule for policy in policies(cluster, pods) for rule in policy.get("egress", [])]
        asks_names = {
            (port["protocol"], port["port"]) for rule in rules if _to_names(rule) for port in rule.get("ports", [])
        }
        databases = [rule for rule in rules if _database(rule)]
        outside = [rule for rule in rules if any("ipBlock" in peer for peer in rule["to"])]
        world = [rule for rule in outside if rule not in databases and not _is_api_server(cluster, rule)]
        fetches = fetched_by(cluster, pods)
        needs_names = bool(fetches) or str(pods) in asking
        if asks_names != (DNS if needs_names else set()):
            wanted = "must ask for names" if needs_names else "asks for none"
            yield f"{pods} may ask the cluster's names at {sorted(asks_names)}; it {wanted}"
        if bool(world) is not bool(fetches):
            yield f"{pods} {'reaches' if world else 'can not reach'} the world; it fetches {fetches or 'nothing'}"
        for rule in world:
            blocks = [peer["ipBlock"] for peer in rule["to"]]
            ports = {(port["protocol"], port["port"]) for port in rule["ports"]}
            if ports != {("TCP", port) for port in _ports_outside(fetches)}:
                yield f"{pods} reaches the world at {sorted(ports)}"
            if any(block["cidr"] != "0.0.0.0/0" or set(block.get("except", ())) != PRIVATE for block in blocks):
                yield f"{pods} reaches {blocks}: the world, without the private networks {sorted(PRIVATE)}"


def _is_api_server(cluster: Cluster, rule: Mapping[str, Any]) -> bool:
    """True for the rule that infra/checks/leases.py looks at."""
    server = cluster.settings.api_server
    blocks = [peer.get("ipBlock", {}).get("cidr") for peer in rule.get("to", [])]
    return server is not None and blocks == list(server.cidrs)


def the_manager_reaches_its_database(cluster: Cluster) -> Iterator[str]:
    """the manager alone reaches the database that the stack names, by a URL that is a Secret of the site"""
    wanted = cluster.settings.manager and cluster.settings.manager.database
    for pods in cluster.pods:
        every = [rule for policy in policies(cluster, pods) for rule in policy.get("egress", [])]
        rules = [rule for rule in every if not _is_api_server(cluster, rule)]
        found = [(*place, port["port"]) for rule in rules if (place := _database(rule)) for port in rule["ports"]]
        needs = pods.labels.get(ROLE) == "manager" and wanted
        if found != ([(wanted.namespace, wanted.cidr, wanted.port)] if needs and wanted else []):
            yield f"{pods} reaches databases at {found}; the stack says {wanted if needs else 'none'}"
        told = {one["name"]: one.get("valueFrom", {}) for box in pods.containers for one in box.get("env", [])}
        secret = told.get(DATABASE, {}).get("secretKeyRef")
        if needs and wanted and secret != {"name": wanted.url_secret, "key": "url"}:
            yield f"{pods} has {DATABASE} from {secret}, not from the Secret {wanted.url_secret}"


def _database(rule: Mapping[str, Any]) -> tuple[str | None, str | None] | None:
    """Return the namespace and the addresses that a rule leads to, if it is no rule of names or of the world."""
    for peer in rule.get("to", []):
        namespace = peer.get("namespaceSelector", {}).get("matchLabels", {}).get(NAMESPACE)
        cidr = peer.get("ipBlock", {}).get("cidr")
        if (namespace or cidr) and namespace != "kube-system" and cidr != "0.0.0.0/0":
            return namespace, cidr
    return None


def _to_names(rule: Mapping[str, Any]) -> bool:
    peers = rule.get("to", [])
    return any(
        peer.get("namespaceSelector", {}).get("matchLabels", {}).get(NAMESPACE) == "kube-system" for peer in peers
    )


def fetched_by(cluster: Cluster, pods: Pods) -> list[str]:
    """Return what it gets from outside the cluster: models of a hub, workspaces, packages, verdicts of a judge."""
    found = []
    variables = [dict(cluster.environment(pods, box)) for box in pods.containers]
    sandboxes = any("RATCHET_SANDBOX_ISOLATION" in one for one in variables)
    if pods.labels.get(ROLE) in ("agent", "trainer", "judge") and any(
        one.variables.get("HF_HUB_OFFLINE") == "0" for one in our_containers(cluster)
    ):
        found.append("models of a hub")
    if sandboxes and any(one.get("RATCHET_WORKSPACE_URLS") for one in variables):
        found.append("workspaces")
    if pods.labels.get(ROLE) == "installer" and cluster.settings.runner and cluster.settings.runner.package_access:
        found.append("packages")
    found += [f"a judge at {url}" for one in variables for url in judges_outside(one)]
    return found


def judges_outside(variables: Mapping[str, str]) -> Iterator[str]:
    for name in ("RATCHET_SCORER_JUDGE_URL", "RATCHET_AUDITOR_JUDGE_URL"):
        if variables.get(name, "").startswith("https://"):
            yield variables[name]


def _ports_outside(fetches: list[str]) -> set[int]:
    """443, but for a judge whose address names another port."""
    judges = [re.search(r"https://[^/:]+(?::(\d+))?/", one) for one in fetches]
    return {int(found[1]) if found and found[1] else 443 for found in judges}


def other_namespaces_reach_what_is_for_them(cluster: Cluster) -> Iterator[str]:
    """Prometheus reaches metrics, KEDA the depths, clients the broker and the API; nobody else comes in from outside"""
    for pods in cluster.pods:
        if pods.works_for_a_leader:  # one policy is for both, and their leader has the ports
            continue
        wanted = set(_from_outside(cluster, pods))
        found = {
            (peer["namespaceSelector"]["matchLabels"].get(NAMESPACE), port["port"])
            for policy in policies(cluster, pods)
            for rule in policy.get("ingress", [])
            for peer in rule.get("from", [])
            if "namespaceSelector" in peer
            for port in rule.get("ports", [])
        }
        yield from (f"namespace {name} may not reach {pods}:{port}, and must" for name, port in sorted(wanted - found))
        yield from (f"namespace {name} reaches {pods}:{port}" for name, port in sorted(found - wanted, key=str))


def _from_outside(cluster: Cluster, pods: Pods) -> Iterator[tuple[str, int]]:
    settings, role = cluster.settings, pods.labels.get(ROLE)
    if settings.monitoring:
        for monitor in cluster.all("ServiceMonitor"):
            labels = monitor.content["spec"]["selector"]["matchLabels"]
            names = [endpoint["port"] for endpoint in monitor.content["spec"]["endpoints"]]
            if labels.items() <= pods.labels.items():
                yield from ((settings.monitoring.namespace, pods.ports[name]) for name in names if name in pods.ports)
    if role == "gateway":
        yield from ((name, 8700) for name in settings.client_namespaces)
        if settings.api.ingress:
            yield settings.api.ingress.controller_namespace, 8700
    if role == "manager":
        yield from ((name, 8780) for name in settings.client_namespaces)
        if settings.api.ingress:
            yield settings.api.ingress.controller_namespace, 8780
    if role == "broker":
        yield from ((name, PORTS["amqp"]) for name in settings.client_namespaces)
        if cluster.all("TriggerAuthentication"):
            yield settings.keda_namespace, PORTS["management"]


def whoever_has_metrics_is_read(cluster: Cluster) -> Iterator[str]:
    """with monitoring, each process with metrics has a ServiceMonitor that the operator finds, and alerts are there"""
    wanted = cluster.settings.monitoring
    if wanted is None:
        return
    read = {monitor.name: monitor for monitor in cluster.all("ServiceMonitor")}
    for pods in cluster.pods:
        ports = {name for name in pods.ports if name in ("http", "metrics", "vllm")}
        if pods.owner.kind == "Job" or pods.works_for_a_leader:
            continue
        if pods.labels.get(ROLE) == "gateway":  # what it relays are the leader's
            ports = set()
        found = read.get(pods.owner.name)
        endpoints = {one["port"] for one in found.content["spec"]["endpoints"]} if found else set()
        if endpoints != ports:
            yield f"{pods} has metrics at {sorted(ports) or 'no port'}; Prometheus reads {sorted(endpoints) or 'none'}"
    for one in (*read.values(), *cluster.all("PrometheusRule")):
        if (one.content["metadata"].get("labels") or {}).get("release") != wanted.release_label:
            yield f"{one} is not labelled release: {wanted.release_label}, by which the operator finds it"
    for monitor in read.values():
        for endpoint in monitor.content["spec"]["endpoints"]:
            labels = {one.get("targetLabel"): one.get("replacement") for one in endpoint.get("relabelings", [])}
            job = "vllm" if endpoint["port"] == "vllm" and monitor.name != "judge" else None
            job = "rabbitmq-queues" if "params" in endpoint else job
            if labels != {"fleet": "ratchet"} | ({"job": job} if job else {}):
                yield f"{monitor} labels its targets {labels}, by which alerts can't tell fleets and servers apart"
    for one in cluster.all("PrometheusRule"):
        links = re.findall(r"runbook_url': '([^']*)'", str(one.content["spec"]))
        right = re.compile(rf"{re.escape(wanted.runbooks)}#\w+")
        yield from (f"{one} links to {link!r}, which is no section" for link in links if not right.fullmatch(link))
    if not cluster.all("PrometheusRule"):
        yield "there is no PrometheusRule: nobody is woken"
    configs = cluster.all("ConfigMap")
    shown = [one for one in configs if one.content["metadata"]["labels"].get("grafana_dashboard") == "1"]
    drawn = [file.read_text("utf-8") for file in sorted(DASHBOARDS.glob("*.json"))]
    if sorted(text for one in shown for text in one.content.get("data", {}).values()) != sorted(drawn):
        yield f"{len(shown)} ConfigMaps are shown, and do not hold the {len(drawn)} dashboards"
