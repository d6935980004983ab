"""A change of configuration replaces the pods that read it: one stack rendered twice, with other passwords."""

from __future__ import annotations

from collections.abc import Iterator

from infra.checks.cluster import Cluster, Pods
from infra.render.manifests import Manifests

HASH = "ratchet/configuration"


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
