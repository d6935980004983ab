"""Checks of what a pod may do to its node and its neighbours, and of where passwords may stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from infra.checks.cluster import Cluster

PASSWORD = re.compile(r"rendered-|://[^/\s:@]+:[^/\s@]+@")
"""A generated password, or a URL with one."""


def pods_are_restricted(cluster: Cluster) -> Iterator[str]:
    """the namespace enforces the restricted profile, all pods obey it, and no root file system can be written to"""
    for namespace in cluster.all("Namespace"):
        labels = namespace.content["metadata"].get("labels", {})
        for mode in ("enforce", "audit", "warn"):
            if labels.get(f"pod-security.kubernetes.io/{mode}") != "restricted":
                yield f"{namespace} does not {mode} the restricted pod security"
    for pods in cluster.pods:
        context = pods.spec.get("securityContext", {})
        if context.get("runAsNonRoot") is not True or not context.get("runAsUser"):
            yield f"{pods} may run as root"
        if context.get("seccompProfile", {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"{pods} has no seccomp profile"
        if any(pods.spec.get(shared) for shared in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{pods} shares namespaces of its node"
        yield from (
            f"{pods}: volume {volume['name']} is a folder of the node"
            for volume in pods.spec.get("volumes", [])
            if "hostPath" in volume
        )
    yield from _containers(cluster)


def _containers(cluster: Cluster) -> Iterator[str]:
    for pods in cluster.pods:
        for box in pods.containers:
            context = box.get("securityContext", {})
            who = f"{pods}, container {box['name']}"
            if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
                yield f"{who} may gain privileges"
            if context.get("capabilities") != {"drop": ["ALL"]}:
                yield f"{who} keeps capabilities"
            if context.get("readOnlyRootFilesystem") is not True:
                yield f"{who} can write to its root file system"


def secrets_stay_secret(cluster: Cluster) -> Iterator[str]:
    """passwords stand in Secrets only, and those are encrypted in the stack's state"""
    for manifest in cluster.manifests:
        if manifest.kind != "Secret" and PASSWORD.search(json.dumps(manifest.content)):
            yield f"{manifest} has a password in it"
        if manifest.kind == "Secret" and not manifest.resource.secret & {"stringData", "data"}:
            yield f"{manifest} stands unencrypted in the stack's state: make its values secret outputs"
