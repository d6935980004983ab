"""Volumes: every mount has one, every one is mounted and has something behind it, and what is shared can be."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from infra.checks.cluster import ROLE, SITE, Cluster, Pods
from infra.checks.declared import our_containers
from infra.checks.pods import quantity

ONE_NODE = "ratchet/one-node"


KEPT = {"RATCHET_LOG_KEEP_GB": "logs_dir", "RATCHET_RUNNER_KEEP_GB": "runner_dir"}
"""Settings that bound what a process keeps, and the settings of the folders that it keeps it in."""
RESERVE = re.compile(r"disk_free_limit\.absolute = (\d+)GB")


def disk_of(pods: Pods) -> Decimal | None:
    """Bytes of the disk that each replica has; None where it has none."""
    disks = pods.owner.content["spec"].get("volumeClaimTemplates", [])
    return quantity(disks[0]["spec"]["resources"]["requests"]["storage"]) if disks else None


def backups_are_encrypted_and_pruned(cluster: Cluster) -> Iterator[str]:
    """a backup is made when the stack says, encrypted with the site's key, and all but the newest few are removed"""
    wanted = cluster.settings.backups
    specs = {one.name: one.content["spec"] for one in cluster.all("CronJob")}
    made = {name: f"{spec['schedule']} {spec.get('timeZone')}" for name, spec in specs.items()}
    if made != ({"backup": f"{wanted.schedule} Etc/UTC"} if wanted else {}):
        yield f"there are the CronJobs {made}; the stack says {wanted.schedule if wanted else 'none'}"
    for pods in cluster.pods:
        if pods.labels.get(ROLE) == "backup" and wanted:
            (box,) = pods.spec["containers"]
            command = " ".join(box.get("command", []))
            keys = [mount.path for mount in pods.mounts(box) if mount.kind == "site-secret"]
            if wanted.key_secret and not any(f"--key-file {path}/key " in command for path in keys):
                yield f"{pods} does not encrypt with `key` of Secret {wanted.key_secret}"
            kept = [mount.path for mount in pods.mounts(box) if mount.kind == "site-claim"]
            pruned = [f"; ls -1t {path}/fleet-*.ratchet | tail -n +{wanted.keep + 1} | xargs -r rm --" for path in kept]
            if not any(one in command for one in pruned):
                yield f"{pods} does not keep the newest {wanted.keep}"


def what_is_kept_fits_its_claim(cluster: Cluster) -> Iterator[str]:
    """what processes may keep on a claim, all together, is less than the claim"""
    kept = defaultdict[str, float](float)
    for one in our_containers(cluster):
        for name, folder in KEPT.items():
            mount = one.pods.mount_of(one.box, str(getattr(one.settings, folder, "")))
            if name in one.variables and mount and mount.kind == "claim":
                kept[mount.name] += float(one.variables[name]) * 1e9
    for name, most in kept.items():
        claim = cluster.get("PersistentVolumeClaim", name)
        size = quantity(claim.content["spec"]["resources"]["requests"]["storage"]) if claim else None
        if size is not None and most >= size:
            yield f"claim {name} has {size} bytes, and {most:.0f} may be kept on it"


def the_broker_has_room(cluster: Cluster) -> Iterator[str]:
    """a broker's disk is more than twice what it must keep free to take messages"""
    for pods in cluster.pods:
        for disk in pods.owner.content["spec"].get("volumeClaimTemplates", []):
            size = quantity(disk["spec"]["resources"]["requests"]["storage"]) or 0
            files = (cluster.get("ConfigMap", f"{pods.owner.name}-files") or pods.owner).content.get("data", {})
            reserves = [int(found) * 10**9 for text in files.values() for found in RESERVE.findall(text)]
            if len(disk["spec"].get("accessModes", [])) != 1:
                yield f"{pods} does not say how its disks are accessed, which Kubernetes refuses"
            if len(reserves) != 1 or size < 2 * reserves[0]:
                yield f"{pods} has disks of {size} bytes and must keep {reserves} free: it would take no messages"


def claims_have_the_size_asked_for(cluster: Cluster) -> Iterator[str]:
    """each claim is as large as the stack says"""
    for claim in cluster.all("PersistentVolumeClaim"):
        wanted = getattr(cluster.settings.storage, claim.name, None)
        size = claim.content["spec"]["resources"]["requests"]["storage"]
        if wanted is not None and size != wanted:
            yield f"{claim} has {size}; the stack says {wanted}"


def mounts_and_volumes_agree(cluster: Cluster) -> Iterator[str]:
    """each mount has its volume, each volume is mounted once a path, and what is behind it exists"""
    for pods in cluster.pods:
        volumes = {volume["name"]: volume for volume in pods.spec.get("volumes", [])}
        disks = {disk["metadata"]["name"] for disk in pods.owner.content["spec"].get("volumeClaimTemplates", [])}
        mounted = set()
        for box in pods.containers:
            mounts = box.get("volumeMounts", [])
            mounted |= {mount["name"] for mount in mounts}
            paths = Counter(mount["mountPath"] for mount in mounts)
            yield from (f"{pods}, container {box['name']} mounts {p} twice" for p, n in paths.items() if n > 1)
            used = [one.path for one in pods.mounts(box) if one.in_memory and one.path != "/dev/shm"]
            yield from (f"{pods}, container {box['name']} keeps {path} in its memory" for path in used)
            for mount in mounts:
                if mount["name"] not in volumes.keys() | disks:
                    yield f"{pods}, container {box['name']} mounts {mount['name']!r}, which is no volume of the pod"
                yield from _file(cluster, pods, volumes.get(mount["name"], {}), mount)
        yield from (f"{pods}: nothing mounts volume {name}" for name in volumes.keys() - mounted)
        for volume in volumes.values():
            yield from _behind(cluster, pods, volume)


def _file(cluster: Cluster, pods: Pods, volume: dict[str, Any], mount: dict[str, Any]) -> Iterator[str]:
    if "configMap" not in volume or "subPath" not in mount:
        return
    keys = cluster.keys("ConfigMap", volume["configMap"]["name"]) or set()
    if mount["subPath"] not in keys:
        yield f"{pods} mounts {mount['subPath']!r} of ConfigMap {volume['configMap']['name']}, which has {sorted(keys)}"


def _behind(cluster: Cluster, pods: Pods, volume: dict[str, Any]) -> Iterator[str]:
    for part, kind, key in (
        ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
    ):
        if part in volume and not volume["name"].startswith(SITE) and cluster.get(kind, volume[part][key]) is None:
            yield f"{pods}: volume {volume['name']} needs {kind} {volume[part][key]}, which is not there"


def shared_claims_can_be_shared(cluster: Cluster) -> Iterator[str]:
    """a claim several pods mount is ReadWriteMany, or its cluster is declared to be one node"""
    users: dict[str, list[str]] = defaultdict(list)
    for pods in cluster.pods:
        for volume in pods.spec.get("volumes", []):
            if "persistentVolumeClaim" in volume:
                users[volume["persistentVolumeClaim"]["claimName"]].append(str(pods))
    for claim in cluster.all("PersistentVolumeClaim"):
        one_node = (claim.content["metadata"].get("annotations") or {}).get(ONE_NODE) == "true"
        modes = claim.content["spec"]["accessModes"]
        if users[claim.name] and modes != ["ReadWriteMany"] and not one_node:
            yield f"{claim} is {', '.join(modes)}, but is shared by {', '.join(users[claim.name])}"
        if not users[claim.name]:
            yield f"{claim} is used by nobody"
