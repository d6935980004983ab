"""The manifests that Kubernetes would be given, made from a recording, and the files they are written to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.render.recording import Recording, Resource
from infra.settings import StackSettings

ORDER = ("apiVersion", "kind", "metadata")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object, with what is known of how it is registered."""

    content: dict[str, Any]
    resource: Resource

    @property
    def kind(self) -> str:
        return str(self.content["kind"])

    @property
    def name(self) -> str:
        return str(self.content["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Empty for what is in none."""
        return str(self.content["metadata"].get("namespace", ""))

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Manifests(list[Manifest]):
    """A stack's manifests, with the settings it was told, and the random values that it makes."""

    def __init__(self, found: Iterable[Manifest], settings: StackSettings, random: Iterable[Resource] = ()) -> None:
        super().__init__(found)
        self.settings = settings
        self.random = tuple(random)


def manifests(recording: Recording) -> Manifests:
    """Return the manifests of a recording, sorted by kind and name."""
    found = [
        Manifest(_in_order(resource.properties), resource)
        for resource in recording.resources
        if resource.type.startswith("kubernetes:")
    ]
    in_order = sorted(found, key=lambda manifest: (manifest.kind, manifest.name))
    random = [resource for resource in recording.resources if resource.type.startswith("random:")]
    return Manifests(in_order, StackSettings.model_validate(recording.configuration["ratchet:fleet"]), random)


def _in_order(properties: Mapping[str, Any]) -> dict[str, Any]:
    rest = sorted(key for key in properties if key not in ORDER)
    return {key: properties[key] for key in (*ORDER, *rest) if key in properties}


def write(found: list[Manifest], folder: Path) -> Iterator[Path]:
    """Write a file for each manifest; remove YAML files that are not of this stack."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {file_name(manifest): yaml.safe_dump(manifest.content, sort_keys=False, width=120) for manifest in found}
    for path in folder.glob("*.yaml"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        path = folder / name
        path.write_text(text, "utf-8")
        yield path


def file_name(manifest: Manifest) -> str:
    return re.sub(r"[^a-z0-9.-]", "-", f"{manifest.kind}-{manifest.name}".lower()) + ".yaml"
