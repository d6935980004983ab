"""Names: valid, unique, in the one namespace, and made after it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from infra.checks.cluster import ROLE, Cluster
from infra.checks.declared import process_of
from infra.checks.fleets import number_of

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
PORT_NAME = re.compile(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")


def unique_and_valid(cluster: Cluster) -> Iterator[str]:
    """names of objects, containers, ports and labels are valid, and no two alike"""
    names = Counter((manifest.kind, manifest.namespace, manifest.name) for manifest in cluster.manifests)
    yield from (f"{kind} {name} is there {count} times" for (kind, _, name), count in names.items() if count > 1)
    for manifest in cluster.manifests:
        if not DNS_LABEL.fullmatch(manifest.name):
            yield f"{manifest}: {manifest.name!r} is no DNS label (small letters, digits, hyphens; at most 63)"
        for key, value in (manifest.content["metadata"].get("labels") or {}).items():
            if not LABEL_VALUE.fullmatch(value):
                yield f"{manifest}: label {key} has the value {value!r}, which is none"
    for pods in cluster.pods:
        boxes = [box["name"] for box in pods.containers]
        yield from (f"{pods}: {count} containers {name}" for name, count in Counter(boxes).items() if count > 1)
        ports = [port for box in pods.containers for port in box.get("ports", [])]
        yield from (
            f"{pods}: {port['name']!r} is no port's name" for port in ports if not PORT_NAME.fullmatch(port["name"])
        )
        numbers = [port["containerPort"] for port in ports]
        yield from (f"{pods}: there is no port {number}" for number in numbers if not 0 < number < 2**16)
        for part in ("name", "containerPort"):
            counts = Counter(port[part] for port in ports)
            yield from (f"{pods}: {count} ports {value}" for value, count in counts.items() if count > 1)


def in_the_namespace_and_after_it(cluster: Cluster) -> Iterator[str]:
    """everything is in the namespace, and waits until there is one"""
    namespaces = cluster.all("Namespace")
    if len(namespaces) != 1:
        yield f"there are {len(namespaces)} Namespaces; there must be one"
        return
    (namespace,) = namespaces
    for manifest in cluster.manifests:
        if manifest is namespace or manifest.kind == "PriorityClass":
            continue
        if manifest.namespace != namespace.name:
            yield f"{manifest} is in namespace {manifest.namespace!r}, not in {namespace.name!r}"
        if namespace.resource.urn not in manifest.resource.waits_for:
            yield f"{manifest} does not wait for the Namespace: its name was given as text, not as its output"


def pods_start_after_what_they_need(cluster: Cluster) -> Iterator[str]:
    """pods wait for the queues, the queues for the broker, and what reads a model for the job that makes it"""
    jobs = {manifest.name: manifest.resource.urn for manifest in cluster.all("Job")}
    brokers = {manifest.resource.urn for manifest in cluster.all("StatefulSet")}
    for pods in cluster.pods:
        role, after = pods.labels.get(ROLE), pods.owner.resource.waits_for
        if role == "setup" and not brokers <= after:
            yield f"{pods} does not wait for the broker"
        number = number_of(pods, cluster.settings)
        if process_of(pods) and jobs.get(f"queues-{number}" if number else "queues") not in after:
            yield f"{pods} does not wait until its queues are declared"
        if role in ("agent", "trainer") and "small-models" in jobs and jobs["small-models"] not in after:
            yield f"{pods} does not wait until its model is made"
        installs = cluster.settings.runner is not None and cluster.settings.runner.programs is not None
        if role == "runner" and installs and jobs.get("programs") not in after:
            yield f"{pods} does not wait until what its programs require is installed"


def nobody_is_waited_for(cluster: Cluster) -> Iterator[str]:
    """Pulumi waits for no Service, claim or Ingress: there may be nobody behind it just now"""
    for manifest in cluster.all("Service", "PersistentVolumeClaim", "Ingress"):
        if (manifest.content["metadata"].get("annotations") or {}).get("pulumi.com/skipAwait") != "true":
            yield f"{manifest} is waited for: an update would fail while nobody is behind it"


def names_resolve(cluster: Cluster) -> Iterator[str]:
    """a StatefulSet's nodes have a headless Service that knows them before they are ready"""
    for manifest in cluster.all("StatefulSet"):
        service = cluster.get("Service", manifest.content["spec"]["serviceName"])
        if service is None:
            yield f"{manifest}: there is no Service {manifest.content['spec']['serviceName']}"
        elif service.content["spec"].get("clusterIP") != "None":
            yield f"{manifest}: its Service {service.name} is not headless, so its pods have no names"
        elif not service.content["spec"].get("publishNotReadyAddresses"):
            yield f"{manifest}: Service {service.name} hides nodes that are not ready: they never find each other"
