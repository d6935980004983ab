"""The broker against what RabbitMQ needs: data on its own disk, nodes that find each other, the users of our table."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.checks.cluster import ROLE, Cluster, Pods
from infra.checks.declared import our_containers, topology
from infra.checks.fleets import name_in_fleet, number_of, prefix_of
from ratchet.bus.accounts import accounts
from ratchet.bus.topology import CONSUMER_TIMEOUT_MS
from services.runner.settings import RunnerSettings

PROMETHEUS = Path(__file__).parents[1] / "prometheus" / "prometheus.yml"
HOME = "/var/lib/rabbitmq"
DATA = f"{HOME}/mnesia"
"""The folder in which the official image keeps queues and messages."""
PORTS = {"amqp": 5672, "management": 15672, "metrics": 15692, "epmd": 4369, "clustering": 25672}
"""RabbitMQ's own, which nothing here changes. Its nodes talk over 20,000 + the AMQP port."""
USER = 999
"""The user of the official image."""
PLUGINS = ("rabbitmq_management", "rabbitmq_prometheus")
WITHOUT_API = (4, 1)
"""From this version on its discovery asks no Kubernetes API, which no pod here has a token for."""
CONFIG_AT, PLUGINS_AT = "/etc/rabbitmq/conf.d/", "/etc/rabbitmq/enabled_plugins"
LIMITS = {"raft.wal_max_size_bytes": (2**25, 2**29), "vm_memory_high_watermark.relative": (0.4, 0.7)}
FIXED = {
    "queue_leader_locator": "balanced",
    "default_queue_type": "quorum",
    "log.file": "false",
    "log.console": "true",
    "consumer_timeout": str(CONSUMER_TIMEOUT_MS),
}


def brokers(cluster: Cluster) -> list[Pods]:
    return [pods for pods in cluster.pods if pods.labels.get(ROLE) == "broker"]


def the_broker_keeps_its_data(cluster: Cluster) -> Iterator[str]:
    """the broker's data lies on its own disk, its ports are RabbitMQ's, and it reads what it is configured with"""
    for pods in brokers(cluster):
        (box,) = pods.spec["containers"]
        if [mount.path for mount in pods.mounts(box) if mount.kind == "own-disk"] != [DATA]:
            yield f"{pods}: its disk is not mounted at {DATA}, where the data is: a restart would lose every message"
        if not re.search(r":\d+\.\d+\.\d+-management", box["image"]):
            yield f"{pods} has the image {box['image']}: a release with the management plugin, such as 4.1.4-management"
        if pods.ports != PORTS:
            yield f"{pods} has the ports {pods.ports}; RabbitMQ listens on {PORTS}"
        if pods.spec["securityContext"].get("runAsUser") != USER:
            yield f"{pods} runs as {pods.spec['securityContext'].get('runAsUser')}; the image's user is {USER}"
        if dict(cluster.environment(pods, box)).get("HOME") != HOME:
            yield f"{pods} has another home than {HOME}, where its cookie is"
        if "RABBITMQ_ERLANG_COOKIE" not in dict(cluster.environment(pods, box)):
            yield f"{pods} is given no RABBITMQ_ERLANG_COOKIE: its nodes would not know each other"
        mounts = pods.mounts(box)
        conf = [m for m in mounts if m.kind == "config" and m.path.startswith(CONFIG_AT) and m.path.endswith(".conf")]
        plugins = [m for m in mounts if m.kind == "config" and m.path == PLUGINS_AT]
        if len(conf) != 1 or len(plugins) != 1:
            yield f"{pods} reads its configuration from {CONFIG_AT}*.conf and {PLUGINS_AT}, where nothing is mounted"
            continue
        files = (cluster.get("ConfigMap", conf[0].name) or pods.owner).content.get("data", {})
        yield from (f"{pods}: {fault}" for fault in _plugins(pods, str(files.get(plugins[0].file))))
        yield from (
            f"{pods}: {fault}" for fault in _config_faults(cluster, pods, box, _lines(files.get(conf[0].file, "")))
        )
        yield from (f"{pods}: {fault}" for fault in (*_probe_faults(box), *_drain_faults(pods, box)))


def _probe_faults(box: Mapping[str, Any]) -> Iterator[str]:
    for probe, words in (("livenessProbe", ["ping"]), ("readinessProbe", ["check_running"])):
        if box[probe].get("exec", {}).get("command") != ["rabbitmq-diagnostics", "-q", *words]:
            yield f"its {probe} does not ask `rabbitmq-diagnostics -q {' '.join(words)}`"
    if box["startupProbe"].get("tcpSocket", {}).get("port") != "amqp":
        yield "its startupProbe does not wait for the port that clients use"


def _drain_faults(pods: Pods, box: Mapping[str, Any]) -> Iterator[str]:
    words = box.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", [])
    drain = re.fullmatch(
        r"/bin/bash -c (?:rabbitmq-upgrade await_online_quorum_plus_one -t (\d+); )?rabbitmq-upgrade drain",
        " ".join(words),
    )
    killed_s = pods.spec.get("terminationGracePeriodSeconds", 30)
    if drain is None or (drain[1] is None) is (pods.count > 1):
        yield f"a node that stops does not wait until the others can do without it, and drain: {words}"
    elif drain[1] and not 60 <= int(drain[1]) < killed_s - 30:
        yield f"before it stops it waits for {drain[1]} s; the pod is killed after {killed_s} s"
    elif killed_s > 3600:
        yield f"a node may take {killed_s} s to go"


def _lines(text: str) -> dict[str, str]:
    return {key.strip(): value.strip() for key, _, value in (line.partition("=") for line in text.splitlines())}


def _plugins(pods: Pods, text: str) -> Iterator[str]:
    found = set(re.findall(r"\w+", text)) if re.fullmatch(r"\[[\w,]+\]\.\n", text) else set()
    clustered = ("rabbitmq_peer_discovery_k8s",) if pods.owner.content["spec"].get("replicas", 1) > 1 else ()
    yield from (f"the plugin {name} is not enabled" for name in (*PLUGINS, *clustered) if name not in found)
    known = {*PLUGINS, "rabbitmq_peer_discovery_k8s"}
    yield from (f"the plugin {name} is enabled, which nobody needs" for name in sorted(found - known))


def _config_faults(cluster: Cluster, pods: Pods, box: Mapping[str, Any], lines: dict[str, str]) -> Iterator[str]:
    for name, value in FIXED.items():
        if lines.get(name) != value:
            yield f"{name} is {lines.get(name)!r}; the fleet needs {value!r}"
    for name, (least, most) in LIMITS.items():
        if not least <= float(lines.get(name, 0)) <= most:
            yield f"{name} is {lines.get(name)}: between {least} and {most} a node keeps its memory"
    definitions = lines.get("load_definitions", "")
    mount = pods.mount_of(box, definitions)
    key = definitions.rpartition("/")[2]
    if mount is None or mount.kind != "secret" or key not in (cluster.keys("Secret", mount.name) or ()):
        yield f"it loads its users from {definitions!r}, where no Secret has them"
    nodes = pods.owner.content["spec"].get("replicas", 1)
    known = {*FIXED, *LIMITS, "load_definitions", "disk_free_limit.absolute"}
    known |= {"cluster_formation.peer_discovery_backend", "cluster_partition_handling"} if nodes > 1 else set()
    yield from (f"{name} is configured, which RabbitMQ does not know" for name in sorted(lines.keys() - known))
    if nodes > 1:
        yield from _cluster_faults(pods, box, lines)


def _cluster_faults(pods: Pods, box: Mapping[str, Any], lines: dict[str, str]) -> Iterator[str]:
    spec = pods.owner.content["spec"]
    version = re.search(r":(\d+)\.(\d+)", box["image"])
    if lines.get("cluster_formation.peer_discovery_backend") != "k8s":
        yield "its nodes do not look for each other: cluster_formation.peer_discovery_backend is not k8s"
    if version is None or (int(version[1]), int(version[2])) < WITHOUT_API:
        yield f"{box['image']} discovers its peers by the Kubernetes API, which no pod has a token for: 4.1 or newer"
    if lines.get("cluster_partition_handling") != "pause_minority":
        yield "a minority of its nodes goes on alone: cluster_partition_handling is not pause_minority"
    if spec.get("podManagementPolicy") != "Parallel":
        yield "its nodes start one after the other: after a power cut the first waits for the last for ever"
    told = {one["name"]: one.get("value") for one in box.get("env", [])}
    node = f"rabbit@$(POD_NAME).{spec['serviceName']}.$(POD_NAMESPACE).svc.cluster.local"
    if told.get("RABBITMQ_NODENAME") != node or told.get("RABBITMQ_USE_LONGNAME") != "true":
        yield f"a node is called {told.get('RABBITMQ_NODENAME')}; the others look for {node}, a long name"
    fields = {one["name"]: one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for one in box.get("env", [])}
    if (fields.get("POD_NAME"), fields.get("POD_NAMESPACE")) != ("metadata.name", "metadata.namespace"):
        yield "its name is made of POD_NAME and POD_NAMESPACE, which are not the pod's own"


def the_bytes_of_queues_are_read(cluster: Cluster) -> Iterator[str]:
    """with monitoring, Prometheus reads of each broker what it reads of Compose's, the bytes of each queue too"""
    jobs = yaml.safe_load(PROMETHEUS.read_text("utf-8"))["scrape_configs"]
    wanted = [_scrape(one) for one in jobs if one["job_name"].startswith("rabbitmq")]
    monitors = {one.name: one.content["spec"]["endpoints"] for one in cluster.all("ServiceMonitor")}
    for pods in brokers(cluster) if cluster.settings.monitoring else ():
        found = [_scrape(one) for one in monitors.get(pods.owner.name, [])]
        if found != wanted:
            yield f"of {pods} Prometheus reads {found}; the alerts need {wanted}, as prometheus.yml has it"


def _scrape(job: Mapping[str, Any]) -> tuple[str, dict[str, list[str]], list[tuple[list[str], str, str]]]:
    """Return the page, its parameters and what is kept of it, in the words of Prometheus or of its operator."""
    kept = [
        (one.get("source_labels") or one.get("sourceLabels"), one["regex"], one["action"])
        for one in job.get("metric_relabel_configs") or job.get("metricRelabelings") or ()
    ]
    return job.get("metrics_path") or job.get("path") or "/metrics", job.get("params", {}), kept


def users_are_those_of_the_table(cluster: Cluster) -> Iterator[str]:
    """the broker is given the users of the fleet's own table, and each process logs in as its own"""
    documents = [
        json.loads(text)
        for pods in brokers(cluster)
        for secret in cluster.all("Secret")
        if secret.name == f"{pods.owner.name}-files"
        for text in (secret.content.get("stringData") or {}).values()
    ]
    declared = topology(cluster)
    if len(documents) != 1 or declared is None:
        yield f"the broker is given {len(documents)} sets of users"
        return
    (document,) = documents
    setup = next(one.settings for one in our_containers(cluster) if one.pods.labels.get(ROLE) == "setup")
    runner = any(isinstance(one.settings, RunnerSettings) for one in our_containers(cluster))
    runner = runner or (setup is not None and setup.manager_url is not None)
    stack, agents = cluster.settings, setup.agents if setup else ()
    prefixes = [prefix_of(number, stack) for number in range(stack.shards)]
    table = {p + one.name: one for p in prefixes for one in accounts(declared, agents, p, runner=runner)}
    rights = {name: (one.configure, one.write, one.read) for name, one in table.items()}
    topics = {(name, topic.exchange, topic.write, topic.read) for name, one in table.items() for topic in one.topics}
    tags = {name: list(one.tags) for name, one in table.items()} | {f"{prefixes[0]}keda": ["monitoring"]}
    vhosts = [vhost["name"] for vhost in document["vhosts"]]
    given = {p["user"]: (p["configure"], p["write"], p["read"]) for p in document["permissions"]}
    if given != rights | {f"{prefixes[0]}keda": ("^$", "^$", "^$")} or vhosts != ["/"]:
        yield f"the rights of {', '.join(sorted(n for n in given if given[n] != rights.get(n)))} are not the table's"
    if {(t["user"], t["exchange"], t["write"], t["read"]) for t in document["topic_permissions"]} != topics:
        yield "the broker's topic permissions are not those of the fleet's table"
    if {p["vhost"] for part in ("permissions", "topic_permissions") for p in document[part]} != {"/"}:
        yield "users have rights on another virtual host than theirs"
    if {user["name"]: user["tags"] for user in document["users"]} != tags:
        yield "the broker's users, or their tags, are not those of the fleet's table"
    yield from _log_in(cluster, {user["name"]: user for user in document["users"]})


def _log_in(cluster: Cluster, users: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for one in our_containers(cluster):
        url = re.fullmatch(r"amqp://([^:]+):([^@]+)@([a-z.-]+):5672/", one.variables.get("RATCHET_AMQP_URL", ""))
        role = str(one.pods.labels.get(ROLE))
        name = name_in_fleet(one.pods, cluster.settings)
        prefix = prefix_of(number_of(one.pods, cluster.settings), cluster.settings)
        wanted = prefix + (role if role in ("setup", "operator") else name)
        if role in ("gateway", "tokens", "models", "installer", "backup"):
            if "RATCHET_AMQP_URL" in one.variables:
                yield f"{one} has a way into the broker, and nothing to do there"
            continue
        if url is None or url[1] != wanted:
            yield f"{one} does not log in to the broker as {wanted}"
        elif not _takes(users.get(url[1], {}), url[2]):
            yield f"{one} logs in as {url[1]} with a password that the broker does not know"


def _takes(user: Mapping[str, Any], password: str) -> bool:
    """Compare as RabbitMQ does: a salt of 4 bytes, and SHA-256 of salt and password."""
    if user.get("hashing_algorithm") != "rabbit_password_hashing_sha256":
        return False
    kept = base64.b64decode(user["password_hash"])
    return kept[4:] == hashlib.sha256(kept[:4] + password.encode()).digest()
