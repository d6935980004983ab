"""Pods: what they ask for, what they are made of, how they are watched, and how they end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from infra.checks.cluster import ROLE, Cluster, Pods
from infra.checks.declared import fleet, image_user
from services.trainer.settings import TrainerSettings

QUANTITY = re.compile(r"(\d+(?:\.\d+)?)(m|[kMGTPE]i?|)")
FACTORS = {"": Decimal(1), "m": Decimal("0.001")} | {
    prefix + binary: Decimal(1024 if binary else 1000) ** power
    for power, prefix in enumerate("kMGTPE", start=1)
    for binary in ("", "i")
}
TOPOLOGY_KEYS = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
"""Labels that every node has, and that nodes of a cloud have."""
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
            if "emptyDir" in volume and not _sizes(volume):
                yield f"{pods}, volume {volume['name']} has no limit: it could fill its node's disk"
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
            if box in pods.spec.get("initContainers", []) and len(missing) < 3 and box.get("restartPolicy") != "Always":
                yield f"{pods}, container {box['name']} is watched, and its pod waits for its end: it is no sidecar"
            ports = {port[part] for port in box.get("ports", []) for part in ("name", "containerPort")}
            for probe in PROBES:
                words = box.get(probe, {}).get("exec", {}).get("command", [])
                lost = [word for word in words[1:] if word.startswith("/") and pods.mount_of(box, word) is None]
                yield from (f"{pods}, container {box['name']}: its {probe} asks for {path}" for path in lost)
                if words and words[0] != "rabbitmq-diagnostics" and words[:2] not in (["sh", "-c"], ["test", "-w"]):
                    yield f"{pods}, container {box['name']}: nobody knows what its {probe} asks by {words}"
                action = box.get(probe, {}).get("httpGet") or box.get(probe, {}).get("tcpSocket")
                if action and action["port"] not in ports:
                    yield f"{pods}, container {box['name']}: its {probe} asks port {action['port']!r}, which it lacks"


def images_can_be_pulled(cluster: Cluster) -> Iterator[str]:
    """each pod names the stack's secret for the registry, where there is one"""
    wanted = cluster.settings.images.pull_secret
    for pods in cluster.pods:
        named = [one["name"] for one in pods.spec.get("imagePullSecrets", [])]
        if named != ([wanted] if wanted else []):
            yield f"{pods} pulls its images with {named or 'no secret'}, not with {wanted or 'none'}"


def homes_can_be_written(cluster: Cluster) -> Iterator[str]:
    """HOME of each container is on a volume that it may write to: its own disk is read-only"""
    for pods in cluster.pods:
        for box in pods.containers:
            home = dict(cluster.environment(pods, box)).get("HOME")
            mount = pods.mount_of(box, home) if home else None
            if mount is None or mount.read_only:
                yield f"{pods}, container {box['name']} has no HOME that it could write to: {home}"


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


def _made_by_the_site(cluster: Cluster) -> set[str | None]:
    """Secrets with the keys of judges outside the cluster, and the URL of the manager's database."""
    settings = cluster.settings
    databases = {settings.manager.database.url_secret} if settings.manager else set()
    return databases | {one.judge_key_secret for one in (settings.scorer, settings.auditor) if one}


def _missing(cluster: Cluster, who: str, source: dict[str, Any], parts: tuple[str, str]) -> Iterator[str]:
    for kind, part in zip(("ConfigMap", "Secret"), parts, strict=True):
        if part not in source:
            continue
        if source[part]["name"] in _made_by_the_site(cluster):
            continue
        keys = cluster.keys(kind, source[part]["name"])
        if keys is None:
            yield f"{who} reads {kind} {source[part]['name']}, which is not there"
        elif "key" in source[part] and source[part]["key"] not in keys:
            yield f"{who} reads {source[part]['key']!r} of {kind} {source[part]['name']}, which has {sorted(keys)}"


def accounts_exist(cluster: Cluster) -> Iterator[str]:
    """each pod has a service account of its own that exists, and no token, but for who leads by a Lease"""
    for pods in cluster.pods:
        name = pods.spec.get("serviceAccountName")
        if name is None or cluster.get("ServiceAccount", name) is None:
            yield f"{pods} has the service account {name!r}, which is not there"
        if pods.spec.get("automountServiceAccountToken") is not False and pods.labels.get(ROLE) != "orchestrator":
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
            if drain and not 10 <= killed - drain <= 120:
                yield f"{pods} is killed {killed - drain:g} s after its drain: 10 to 120 leave time to end"
            if generation >= drain > 0:
                yield f"{pods} drains for {drain:g} s, but one generation may take {generation:g} s"


def containers_may_use_their_volumes(cluster: Cluster) -> Iterator[str]:
    """a pod's volumes belong to the group it runs as, and our containers run as the user their image was made for"""
    for pods in cluster.pods:
        context = pods.spec.get("securityContext", {})
        user = context.get("runAsUser")
        if context.get("fsGroup") != user or context.get("runAsGroup") != user:
            yield f"{pods} runs as {user}, and its volumes belong to {context.get('fsGroup')}: it could not write them"
        if "/ratchet-" in pods.spec["containers"][0]["image"] and user != image_user():
            yield f"{pods} runs as {user}; its image is made for {image_user()}"
        for volume in pods.spec.get("volumes", []):
            mode = volume.get("secret", {}).get("defaultMode")
            if "secret" in volume and mode != 0o440:
                yield f"{pods}: files of volume {volume['name']} have the mode {mode}: 0o440 lets its group read them"
            for item in volume.get("secret", {}).get("items", []):
                if item["path"] != str(item["key"]).lower():
                    yield f"{pods}: {item['key']} is the file {item['path']}, which is no setting's name"
        if context.get("fsGroupChangePolicy") != "OnRootMismatch":
            yield f"{pods}: every start would change the owner of each file of its volumes"
        if pods.spec.get("enableServiceLinks") is not False:
            yield f"{pods} is told every Service by variables, some of which RabbitMQ and vLLM take for settings"


def pods_are_placed(cluster: Cluster) -> Iterator[str]:
    """what stays is spread over nodes and zones by labels that nodes have; strictly over nodes what one must outlive"""
    for pods in cluster.pods:
        if pods.owner.kind not in ("Deployment", "StatefulSet"):
            continue
        found = {one["topologyKey"]: one for one in pods.spec.get("topologySpreadConstraints", [])}
        if set(found) != set(TOPOLOGY_KEYS):
            yield f"{pods} is spread over {', '.join(found)}: nodes are labelled with {' and '.join(TOPOLOGY_KEYS)}"
            continue
        strict = {key for key, one in found.items() if one.get("whenUnsatisfiable") == "DoNotSchedule"}
        several_nodes = cluster.settings.storage.access_mode == "ReadWriteMany"
        apart = {"broker": pods.count > 1, "orchestrator": several_nodes}.get(str(pods.labels.get(ROLE)), False)
        if strict != ({TOPOLOGY_KEYS[0]} if apart else set()):
            wanted = "each replica must have a node of its own" if apart else "replicas may share a node"
            yield f"{pods} is spread strictly over {', '.join(sorted(strict)) or 'nothing'}: {wanted}"
        yield from (f"{pods}: its skew is {one['maxSkew']}" for one in found.values() if one["maxSkew"] != 1)


def gpus_are_used(cluster: Cluster) -> Iterator[str]:
    """a trainer on CUDA has GPUs, a process for each, and memory that they share a model in"""
    for one in fleet(cluster):
        if not isinstance(one.settings, TrainerSettings):
            continue
        gpus = sum(int(n) for name, n in one.box["resources"].get("limits", {}).items() if "gpu" in name)
        if one.settings.trainer_device == "cuda" and not gpus:
            yield f"{one} trains on cuda, and has no GPU"
        if one.settings.trainer_device == "cpu" and gpus:
            yield f"{one} trains on the CPU, and holds {gpus} GPUs"
        if one.settings.trainer_processes != max(1, gpus):
            yield f"{one} starts {one.settings.trainer_processes} processes for {gpus} GPUs"
        shared = one.pods.mount_of(one.box, "/dev/shm")
        if gpus > 1 and (shared is None or not shared.in_memory):
            yield f"{one} trains in {gpus} processes, which have no memory at /dev/shm to share"


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
        if not 600 <= spec.get("progressDeadlineSeconds", 600) <= 7200:
            yield f"{pods}: an update is given up after {spec.get('progressDeadlineSeconds')} s"
        no_room = pods.labels.get(ROLE) in ("orchestrator", "trainer") or pods.gpus
        if rolling and no_room is not (rolling.get("maxSurge") == 0):
            wanted = (
                "an old pod ends first: there is no GPU or no use for two" if no_room else "the new pod starts first"
            )
            yield f"{pods} is updated with {rolling}; {wanted}"
        if not 1 <= (spec.get("revisionHistoryLimit") or 0) <= 50:
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
