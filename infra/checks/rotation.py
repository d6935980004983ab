"""Secrets can be made anew, and the pods that read them are replaced: a stack rendered twice, with other passwords."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.cluster import Cluster, Pods
from infra.render.manifests import Manifests

HASH = "ratchet/configuration"
COOKIE = "broker-cookie"
LEAST_LENGTH = 32
"""Letters of a password, and bytes of a key."""


def random_values_are_long_and_made_anew(cluster: Cluster) -> Iterator[str]:
    """a password has 32 letters that an address can hold, and a rotation that is a setting makes a new one"""
    rotations = {"RandomPassword": cluster.settings.broker.rotation, "RandomBytes": cluster.settings.api.rotation}
    for one in cluster.random:
        kind = one.type.rpartition(":")[2]
        if one.properties.get("length", 0) < LEAST_LENGTH:
            yield f"{one.name} has fewer than {LEAST_LENGTH} letters"
        if kind == "RandomPassword" and one.properties.get("special") is not False:
            yield f"{one.name} may have letters that end the password in an address"
        keepers = one.properties.get("keepers")
        if one.name != COOKIE and keepers != {"rotation": rotations[kind]}:
            yield f"{one.name} is made anew for {keepers}, and not for another rotation"


def new_secrets_replace_their_pods(found: Manifests, with_other_passwords: Manifests) -> Iterator[str]:
    """the pods whose secrets change are replaced, and no others"""
    before, after = Cluster(found), Cluster(with_other_passwords)
    for one, other in zip(before.pods, after.pods, strict=True):
        changed = _secrets(before, one) != _secrets(after, other)
        replaced = _hash(one) != _hash(other)
        if changed is not replaced:
            secrets = "change" if changed else "stay the same"
            yield f"{one}: its secrets {secrets}, and it is {'' if replaced else 'not '}replaced"


def _hash(pods: Pods) -> str:
    return str(pods.template.get("metadata", {}).get("annotations", {}).get(HASH))


def _secrets(cluster: Cluster, pods: Pods) -> list[str]:
    """Return what stands in the Secrets that it mounts or has in its environment."""
    names = {volume["secret"]["secretName"] for volume in pods.spec.get("volumes", []) if "secret" in volume}
    names |= {
        source["secretRef"]["name"]
        for box in pods.containers
        for source in box.get("envFrom", [])
        if "secretRef" in source
    }
    found = (cluster.get("Secret", name) for name in sorted(names))
    return [repr(sorted((one.content.get("stringData") or {}).items())) for one in found if one]
