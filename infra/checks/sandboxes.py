"""Checks of pods that run foreign code: sandboxes can be made there, the rest is closed, few secrets are in reach."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.checks.api import SIGNING_KEY
from infra.checks.cluster import ROLE, SITE, Cluster, Pods
from infra.checks.needed_flows import judges_outside

ENVIRONMENTS = "RATCHET_PROGRAM_ENVIRONMENTS"
ISOLATION, CACHE = "RATCHET_SANDBOX_ISOLATION", "RATCHET_WORKSPACE_CACHE"
URLS = "RATCHET_WORKSPACE_URLS"
RENEWED = re.compile(
    r"--ttl (?P<hours>\d+)h > ?(?P<file>\S+)\.new \\\n +&& mv (?P=file)\.new (?P=file); "
    r"then pause=(?P<pause>\d+); again=5\n"
)
"""The script of the pod that renews the runners' token."""


def sandboxes_are_closed_in(cluster: Cluster) -> Iterator[str]:
    """a pod has what its sandboxes need, no other pod has it, and no token of the hub nor the world is within reach"""
    for pods in cluster.pods:
        told = {name: value for box in pods.containers for name, value in cluster.environment(pods, box)}
        isolation = told.get(ISOLATION)
        profile = pods.spec.get("securityContext", {}).get("seccompProfile", {})
        localhost = profile.get("type") == "Localhost" and bool(profile.get("localhostProfile"))
        if localhost is not (isolation == "pod"):
            yield f"{pods}: its seccomp profile is {profile.get('type')}, its isolation {isolation}"
        if bool(pods.spec.get("runtimeClassName")) is not (isolation == "gvisor"):
            yield f"{pods}: its RuntimeClass is {pods.spec.get('runtimeClassName')}, its isolation {isolation}"
        if isolation is not None:
            yield from _holds_little(cluster, pods, told)


def _holds_little(cluster: Cluster, pods: Pods, told: Mapping[str, str]) -> Iterator[str]:
    for volume in pods.spec.get("volumes", []):
        if volume["name"].startswith(SITE) and "secret" in volume:
            yield f"{pods} runs code of strangers, and sees the site's secret {volume['name'].removeprefix(SITE)}"
    if told.get(CACHE) not in {mount["mountPath"] for box in pods.containers for mount in box["volumeMounts"]}:
        yield f"{pods} has nowhere to keep fetched workspaces: {CACHE} is {told.get(CACHE)!r}"
    if _reaches_the_world(cluster, pods) and not told.get(URLS) and not list(judges_outside(told)):
        yield f"{pods} runs code of strangers and reaches the world, though it has no workspaces to fetch"


def _reaches_the_world(cluster: Cluster, pods: Pods) -> bool:
    return any("ipBlock" in peer for rule in _rules(cluster, pods, "egress") for peer in rule.get("to", []))


def programs_are_installed_apart(cluster: Cluster) -> Iterator[str]:
    """what programs require is written by a pod without secrets and open ports, and only read where they run"""
    for pods in cluster.pods:
        for box in pods.containers:
            told = dict(cluster.environment(pods, box))
            if (place := told.get(ENVIRONMENTS)) is None:
                continue
            mounts = [one for one in box["volumeMounts"] if f"{place}/".startswith(f"{one['mountPath']}/")]
            if not mounts:
                yield f"{pods}: {ENVIRONMENTS} is {place}, which is on no volume"
            elif ISOLATION in told:
                yield from _only_reads(cluster, pods, mounts[0], place)
            else:
                yield from _only_installs(cluster, pods)


def _only_reads(cluster: Cluster, pods: Pods, mount: Mapping[str, Any], place: str) -> Iterator[str]:
    if not mount.get("readOnly"):
        yield f"{pods} may write to what its programs are made of: {place}"
    if not any(_writes(cluster, other, mount["name"], place) for other in cluster.pods if other is not pods):
        yield f"{pods}: nobody installs anything in {place}"


def _writes(cluster: Cluster, pods: Pods, volume: str, place: str) -> bool:
    return any(
        mount["name"] == volume and not mount.get("readOnly")
        for box in pods.containers
        if dict(cluster.environment(pods, box)).get(ENVIRONMENTS) == place
        for mount in box["volumeMounts"]
    )


def _only_installs(cluster: Cluster, pods: Pods) -> Iterator[str]:
    secrets = sorted(volume["name"] for volume in pods.spec.get("volumes", []) if "secret" in volume)
    if secrets or any("secretRef" in source for box in pods.containers for source in box.get("envFrom", [])):
        yield f"{pods} runs what packages bring, and sees secrets: {', '.join(secrets) or 'in its environment'}"
    reached = [peer for rule in _rules(cluster, pods, "egress") for peer in rule.get("to", []) if "podSelector" in peer]
    if reached or _rules(cluster, pods, "ingress"):
        yield f"{pods} runs what packages bring, and talks with others of the fleet"


def signing_keys_are_out_of_reach(cluster: Cluster) -> Iterator[str]:
    """a pod that sees the key that tokens are signed with talks to nobody, and nobody to it"""
    for pods in cluster.pods:
        secrets = {volume.get("secret", {}).get("secretName") for volume in pods.spec.get("volumes", [])} - {None}
        holds = any(SIGNING_KEY in (cluster.keys("Secret", name) or ()) for name in secrets)
        if holds and (_rules(cluster, pods, "egress") or _rules(cluster, pods, "ingress")):
            yield f"{pods} sees the signing key of tokens and has a network: whoever gets in can make tokens"


def tokens_are_renewed_in_time(cluster: Cluster) -> Iterator[str]:
    """the runners' token is issued anew twice before the pod counts as stuck, and that before the token ends"""
    for pods in cluster.pods:
        if pods.labels.get(ROLE) != "tokens":
            continue
        (box,) = pods.spec["containers"]
        if SIGNING_KEY not in (cluster.keys("Secret", f"{pods.owner.name}-files") or ()):
            yield f"{pods} is given no {SIGNING_KEY} to sign tokens with"
        renewed = RENEWED.search(" ".join(box["command"]))
        asked = " ".join(box["livenessProbe"]["exec"]["command"])
        stale = re.search(r'test -n "\$\(find (\S+) -mmin -(\d+)\)"$', asked)
        if renewed is None or stale is None or stale[1] != renewed["file"]:
            yield f"{pods}: its script issues no token, or its probe looks for another: {asked}"
        elif not 2 * int(renewed["pause"]) <= 60 * int(stale[2]) <= 1800 * int(renewed["hours"]):
            yield f"{pods} renews a token of {renewed['hours']} h each {renewed['pause']} s; stuck: {stale[2]} minutes"


def _rules(cluster: Cluster, pods: Pods, direction: str) -> list[dict[str, Any]]:
    found = []
    for policy in cluster.all("NetworkPolicy"):
        labels = policy.content["spec"]["podSelector"].get("matchLabels", {})
        if labels and labels.items() <= pods.labels.items():
            found += policy.content["spec"].get(direction, [])
    return found
