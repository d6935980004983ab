"""The manifests as the checks look at them: by kind and name, and every pod there will be with what makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.render.manifests import Manifest, Manifests

ROLE = "app.kubernetes.io/component"
SECRETS_AT = "/run/secrets"
"""The folder whose files are settings, each named as its variable."""
SITE = "site-"
"""The prefix of volumes whose Secret the site makes itself."""
LEADER_TEMPLATE = ("spec", "leaderWorkerTemplate", "leaderTemplate")
WORKER_TEMPLATE = ("spec", "leaderWorkerTemplate", "workerTemplate")
TEMPLATES_AT: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Deployment": (("spec", "template"),),
    "StatefulSet": (("spec", "template"),),
    "LeaderWorkerSet": (LEADER_TEMPLATE, WORKER_TEMPLATE),
    "Job": (("spec", "template"),),
    "CronJob": (("spec", "jobTemplate", "spec", "template"),),
    "ScaledJob": (("spec", "jobTargetRef", "template"),),
}


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mount with what is behind it: `kind` is claim, site-claim, own-disk, config, secret, site-secret or scratch."""

    path: str
    kind: str
    name: str
    read_only: bool
    file: str | None
    in_memory: bool = False

    def holds(self, path: str) -> bool:
        return f"{path}/".startswith(f"{self.path}/")


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of one controller. Those of a LeaderWorkerSet are two: the first pods of its groups, and the others."""

    owner: Manifest
    template: Mapping[str, Any]
    works_for_a_leader: bool = False

    @property
    def machines(self) -> int:
        """Pods that do one piece of work together."""
        spec = self.owner.content["spec"]
        if self.owner.kind == "LeaderWorkerSet":
            return int(spec["leaderWorkerTemplate"]["size"])
        return int(spec.get("jobTargetRef", spec).get("parallelism", 1))

    @property
    def count(self) -> int:
        """Pods that there are at once, where no autoscaler decides that; of a job for each message those of one."""
        replicas = int(self.owner.content["spec"].get("replicas", 1))
        if self.owner.kind == "LeaderWorkerSet":
            return replicas * (self.machines - 1 if self.works_for_a_leader else 1)
        return replicas * self.machines

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self.template.get("metadata", {}).get("labels", {}))

    @property
    def spec(self) -> Mapping[str, Any]:
        return dict(self.template["spec"])

    @property
    def containers(self) -> list[dict[str, Any]]:
        """Sidecars first."""
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    @property
    def ports(self) -> dict[str, int]:
        return {port["name"]: port["containerPort"] for box in self.containers for port in box.get("ports", [])}

    def mounts(self, box: Mapping[str, Any]) -> list[Mounted]:
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", [])}
        return [_mounted_of(mount, volumes.get(mount["name"])) for mount in box.get("volumeMounts", [])]

    def mount_of(self, box: Mapping[str, Any], path: str) -> Mounted | None:
        """The mount that a path of the container lies on; None if it lies in the image."""
        found = [mount for mount in self.mounts(box) if mount.holds(path)]
        return max(found, key=lambda mount: len(mount.path), default=None)

    @property
    def gpus(self) -> bool:
        limits = (box.get("resources", {}).get("limits", {}) for box in self.containers)
        return any("gpu" in name for limit in limits for name in limit)

    def __str__(self) -> str:
        return str(self.owner)


class Cluster:
    """`settings` is what the stack was told."""

    def __init__(self, manifests: Manifests) -> None:
        self.manifests = list(manifests)
        self.settings = manifests.settings
        self.random = manifests.random
        self.pods = [
            Pods(manifest, _template(manifest, place), place is WORKER_TEMPLATE)
            for manifest in manifests
            for place in TEMPLATES_AT.get(manifest.kind, ())
        ]

    def all(self, *kinds: str) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest.kind in kinds]

    def get(self, kind: str, name: str) -> Manifest | None:
        return next((manifest for manifest in self.all(kind) if manifest.name == name), None)

    def select(self, labels: Mapping[str, str]) -> list[Pods]:
        """Pods that a non-empty selector of labels matches."""
        return [pods for pods in self.pods if labels and labels.items() <= pods.labels.items()]

    def keys(self, kind: str, name: str) -> set[str] | None:
        """Return the keys of a ConfigMap or Secret; None if there is none of that name."""
        found = self.get(kind, name)
        if found is None:
            return None
        return {key for part in ("data", "stringData", "binaryData") for key in found.content.get(part) or {}}

    def environment(self, pods: Pods, container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Settings with their plain values, from variables and from files of secrets; from fields of the pod none."""
        for source in container.get("envFrom", []):
            for kind, part in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
                named = self.get(kind, source[part]["name"]) if part in source else None
                if named is not None:
                    yield from ((named.content.get("data") or {}) | (named.content.get("stringData") or {})).items()
        yield from ((one["name"], one["value"]) for one in container.get("env", []) if "value" in one)
        volumes = {volume["name"]: volume.get("secret", {}) for volume in pods.spec.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            source = volumes.get(mount["name"], {})
            named = self.get("Secret", source["secretName"]) if mount["mountPath"] == SECRETS_AT and source else None
            values = (named.content.get("stringData") or {}) if named is not None else {}
            yield from ((one["key"], values[one["key"]]) for one in source.get("items", []) if one["key"] in values)


def _mounted_of(mount: Mapping[str, Any], volume: Mapping[str, Any] | None) -> Mounted:
    claim = (volume or {}).get("persistentVolumeClaim", {})
    site = str(mount["name"]).startswith(SITE)
    if volume is None:
        kind, name = "own-disk", mount["name"]
    elif claim:
        kind, name = "site-claim" if site else "claim", claim["claimName"]
    elif "configMap" in volume:
        kind, name = "config", volume["configMap"]["name"]
    elif "secret" in volume:
        kind, name = "site-secret" if site else "secret", volume["secret"]["secretName"]
    else:
        kind, name = "scratch", mount["name"]
    in_memory = kind == "scratch" and (volume or {}).get("emptyDir", {}).get("medium") == "Memory"
    read_only = bool(mount.get("readOnly")) or bool(claim.get("readOnly"))
    return Mounted(mount["mountPath"], kind, name, read_only, mount.get("subPath"), in_memory)


def _template(manifest: Manifest, place: tuple[str, ...]) -> Mapping[str, Any]:
    part: Any = manifest.content
    for key in place:
        part = part[key]
    return dict(part)
