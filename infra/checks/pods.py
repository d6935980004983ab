"""Pods: what they ask for, what they are made of, how they are watched, and how they end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from infra.checks.cluster import Cluster, Pods

QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kMGTPE]i?|)")
FACTORS = {"": Decimal(1), "m": Decimal("0.001")} | {
    prefix + binary: Decimal(1024 if binary else 1000) ** power
    for power, prefix in enumerate("kMGTPE", start=1)
    for binary in ("", "i")
}
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def quantity(text: Any) -> Decimal | None:
    """Kubernetes' resource.Quantity, without exponents; None if it is none. `k` is small, `Ki` is not."""
    match = QUANTITY.fullmatch(str(text))
    if match is None or match[2] == "ki":
        return None
    return Decimal(match[1]) * FACTORS[match[2]]


def quantities_parse_and_fit(cluster: Cluster) -> Iterator[str]:
    """cpu, memory, GPU and storage are quantities; nothing asks for more than its limit, or for no memory limit"""
    for claim in cluster.all("PersistentVolumeClaim"):
        yield from _bad(str(claim), claim.content["spec"]["resources"]["requests"])
    for pods in cluster.pods:
        for template in pods.owner.content["spec"].get("volumeClaimTemplates", []):
            yield from _bad(f"{pods}, a disk", template["spec"]["resources"]["requests"])
        for volume in pods.spec.get("volumes", []):
            yield from _bad(f"{pods}, volume {volume['name']}", _sizes(volume))
        for box in pods.containers:
            yield from _resources(f"{pods}, container {box['name']}", box.get("resources", {}))


def _resources(who: str, resources: dict[str, Any]) -> Iterator[str]:
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    faults = [*_bad(who, requests), *_bad(who, limits)]
    yield from faults
    for name in {"cpu", "memory"} - requests.keys():
        yield f"{who} asks for no {name}"
    if "memory" not in limits:
        yield f"{who} has no limit of memory: it could take its node down"
    if faults:
        return
    for name in requests.keys() & limits.keys():
        asked, most = quantity(requests[name]), quantity(limits[name])
        if asked is not None and most is not None and (asked > most or ("gpu" in name and asked != most)):
            yield f"{who} asks for {name} {requests[name]} with a limit of {limits[name]}"


def _sizes(volume: dict[str, Any]) -> dict[str, Any]:
    limit = (volume.get("emptyDir") or {}).get("sizeLimit")
    return {"sizeLimit": limit} if limit else {}


def _bad(who: str, wanted: dict[str, Any]) -> Iterator[str]:
    for name, value in wanted.items():
        amount = quantity(value)
        if amount is None:
            yield f"{who}: {name} {value!r} is no quantity"
        elif name in ("memory", "storage", "sizeLimit") and amount < 2**20:
            yield f"{who}: {name} {value!r} is less than 1Mi: a unit is missing or wrong"
        elif name == "cpu" and amount > 256:
            yield f"{who}: cpu {value!r} is more than a node has: a unit is missing"


def images_are_pinned(cluster: Cluster) -> Iterator[str]:
    """each image names a release or a digest"""
    for pods in cluster.pods:
        for box in pods.containers:
            name, _, tag = box["image"].rpartition("/")[2].partition(":")
            if "@sha256:" not in box["image"] and (not name or tag in ("", "latest")):
                yield f"{pods}, container {box['name']}: {box['image']} names no release"


def probes_find_their_port(cluster: Cluster) -> Iterator[str]:
    """what stays has all three probes, and their ports are the container's own"""
    for pods in cluster.pods:
        for box in pods.containers:
            missing = [probe for probe in PROBES if probe not in box]
            if missing and pods.owner.kind in ("Deployment", "StatefulSet"):
                yield f"{pods}, container {box['name']} has no {', no '.join(missing)}"
            ports = {port[part] for port in box.get("ports", []) for part in ("name", "containerPort")}
            for probe in PROBES:
                action = box.get(probe, {}).get("httpGet") or box.get(probe, {}).get("tcpSocket")
                if action and action["port"] not in ports:
                    yield f"{pods}, container {box['name']}: its {probe} asks port {action['port']!r}, which it lacks"


def services_listen_where_they_are_asked(cluster: Cluster) -> Iterator[str]:
    """a service listens on its container's port, on all addresses"""
    for pods in cluster.pods:
        for box in pods.containers:
            told = dict(cluster.environment(pods, box))
            numbers = {str(port["containerPort"]) for port in box.get("ports", [])}
            ports = {name: value for name, value in told.items() if re.fullmatch(r"RATCHET_[A-Z]+_HTTP_PORT", name)}
            yield from (
                f"{pods}: {name} is {value}, not {numbers}" for name, value in ports.items() if {value} != numbers
            )
            if (
                "RATCHET_AMQP_URL" in told
                and box.get("ports")
                and (len(ports) != 1 or told.get("RATCHET_HTTP_HOST") != "0.0.0.0")
            ):
                yield f"{pods}, container {box['name']} is not told where to listen"


def environment_comes_from_somewhere(cluster: Cluster) -> Iterator[str]:
    """each ConfigMap and Secret a container reads is there, with the key it reads"""
    for pods in cluster.pods:
        for box in pods.containers:
            who = f"{pods}, container {box['name']}"
            for source in box.get("envFrom", []):
                yield from _missing(cluster, who, source, ("configMapRef", "secretRef"))
            for variable in box.get("env", []):
                yield from _missing(cluster, who, variable.get("valueFrom") or {}, ("configMapKeyRef", "secretKeyRef"))


def _missing(cluster: Cluster, who: str, source: dict[str, Any], parts: tuple[str, str]) -> Iterator[str]:
    for kind, part in zip(("ConfigMap", "Secret"), parts, strict=True):
        if part not in source:
            continue
        keys = cluster.keys(kind, source[part]["name"])
        if keys is None:
            yield f"{who} reads {kind} {source[part]['name']}, which is not there"
        elif "key" in source[part] and source[part]["key"] not in keys:
            yield f"{who} reads {source[part]['key']!r} of {kind} {source[part]['name']}, which has {sorted(keys)}"


def accounts_exist(cluster: Cluster) -> Iterator[str]:
    """each pod has a service account of its own that exists, and no token"""
    for pods in cluster.pods:
        name = pods.spec.get("serviceAccountName")
        if name is None or cluster.get("ServiceAccount", name) is None:
            yield f"{pods} has the service account {name!r}, which is not there"
        if pods.spec.get("automountServiceAccountToken") is not False:
            yield f"{pods} is given a token for the Kubernetes API, which it has no use for"


def drain_is_given_time(cluster: Cluster) -> Iterator[str]:
    """a pod is killed later than its service stops waiting, and that waits longer than a generation takes"""
    for pods in cluster.pods:
        killed = pods.spec.get("terminationGracePeriodSeconds", 30)
        for box in pods.containers:
            told = dict(cluster.environment(pods, box))
            drain = float(told.get("RATCHET_DRAIN_GRACE_S", 0))
            generation = float(told.get("RATCHET_AGENT_GENERATION_TIMEOUT_S", 0))
            if drain >= killed:
                yield f"{pods} is killed after {killed} s, but drains for up to {drain:g} s"
            if generation >= drain > 0:
                yield f"{pods} drains for {drain:g} s, but one generation may take {generation:g} s"


def updates_drain(cluster: Cluster) -> Iterator[str]:
    """an update replaces pods one at a time and leaves those that work alone, and can be taken back"""
    for pods in cluster.pods:
        if pods.owner.kind != "Deployment":
            continue
        spec = pods.owner.content["spec"]
        rolling = spec.get("strategy", {}).get("rollingUpdate")
        if not rolling:
            yield f"{pods} is not updated step by step"
        elif (rolling.get("maxSurge"), rolling.get("maxUnavailable")) not in ((1, 0), (0, 1)):
            yield f"{pods} is updated with {rolling}: not one pod at a time"
        if not spec.get("revisionHistoryLimit"):
            yield f"{pods} keeps no revisions: `kubectl rollout undo` could not take an update back"


def gpus_are_on_gpu_nodes(cluster: Cluster) -> Iterator[str]:
    """pods with GPUs select and tolerate GPU nodes; others do neither"""
    for pods in cluster.pods:
        placed = bool(pods.spec.get("nodeSelector")) and bool(pods.spec.get("tolerations"))
        if pods.gpus and not placed:
            yield f"{pods} asks for GPUs, but does not select and tolerate GPU nodes"
        if not pods.gpus and pods.spec.get("tolerations"):
            yield f"{pods} tolerates GPU nodes and asks for no GPU"
        if pods.gpus and not _gpu_containers_only(pods):
            yield f"{pods}: more than one of its containers asks for GPUs"


def _gpu_containers_only(pods: Pods) -> bool:
    limits = [box.get("resources", {}).get("limits", {}) for box in pods.containers]
    return sum(any("gpu" in name for name in limit) for limit in limits) == 1
