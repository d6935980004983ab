"""Each manifest by itself: Kubernetes' own schemas, strictly, and compact ones of the custom resources in use.

Those were written after the custom resource definitions of KEDA, the Prometheus operator and LeaderWorkerSet, with only
the fields used here, so a field spelled wrong or used for the first time is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from kubernetes_validate import utils
from referencing import Registry, Resource

from infra.checks.cluster import Cluster

KUBERNETES = "1.33"
SCHEMAS = Path(__file__).parent / "schemas"
WORDS: Mapping[str, Set[str]] = {
    ".accessModes": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"},
    ".completionMode": {"Indexed", "NonIndexed"},
    ".concurrencyPolicy": {"Forbid", "Replace", "Allow"},
    ".drop": {"ALL"},
    ".effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
    ".fsGroupChangePolicy": {"OnRootMismatch", "Always"},
    ".medium": {"Memory"},
    ".pathType": {"Exact", "Prefix", "ImplementationSpecific"},
    ".podManagementPolicy": {"OrderedReady", "Parallel"},
    ".policyTypes": {"Ingress", "Egress"},
    ".preemptionPolicy": {"Never", "PreemptLowerPriority"},
    ".protocol": {"TCP", "UDP", "SCTP", "http"},
    ".restartPolicy": {"Always", "OnFailure", "Never", "RecreateGroupOnPodRestart"},
    ".timeZone": available_timezones(),
    ".unhealthyPodEvictionPolicy": {"IfHealthyBudget", "AlwaysAllow"},
    ".whenUnsatisfiable": {"DoNotSchedule", "ScheduleAnyway"},
    "matchExpressions.operator": {"In", "NotIn", "Exists", "DoesNotExist"},
    "rolloutStrategy.type": {"RollingUpdate"},
    "seccompProfile.type": {"RuntimeDefault", "Localhost"},
    "strategy.type": {"RollingUpdate", "Recreate"},
    "tolerations.operator": {"Exists", "Equal"},
    "updateStrategy.type": {"RollingUpdate", "OnDelete"},
}
"""Words of fields, by how their paths end: Kubernetes' schemas take any text for them, and it refuses others later."""
CUSTOM = ("keda.sh/", "monitoring.coreos.com/", "leaderworkerset.x-k8s.io/")


def valid_alone(cluster: Cluster) -> Iterator[str]:
    """every field exists and has the right type and value"""
    for manifest in cluster.manifests:
        if problem := _problem(manifest.content):
            yield f"{manifest}: {problem}"
        if manifest.kind == "LeaderWorkerSet":
            for name in ("leaderTemplate", "workerTemplate"):
                template = manifest.content["spec"]["leaderWorkerTemplate"][name]
                alone = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {}, "template": template}
                if problem := _problem(alone):
                    yield f"{manifest}, its {name}: {problem}"
        if manifest.kind == "ScaledJob":
            job = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {},
                "spec": manifest.content["spec"]["jobTargetRef"],
            }
            if problem := _problem(job):
                yield f"{manifest}, its job: {problem}"


def words_are_kubernetes_own(cluster: Cluster) -> Iterator[str]:
    """fields with a few possible words have one of these"""
    for manifest in cluster.manifests:
        for path, word in _words(manifest.content, ""):
            wanted = next((words for end, words in WORDS.items() if path.endswith(end)), {word})
            if word not in wanted:
                yield f"{manifest}: {path[1:]} is {word!r}, and may be {', '.join(sorted(wanted)[:4])}"


def _words(part: Any, path: str) -> Iterator[tuple[str, str]]:
    """Each text with its path, in which places of lists are left out."""
    if isinstance(part, str):
        yield path, part
    for name, inner in part.items() if isinstance(part, dict) else ():
        yield from _words(inner, f"{path}.{name}")
    for inner in part if isinstance(part, list) else ():
        yield from _words(inner, path)


def _problem(content: Mapping[str, Any]) -> str | None:
    return _problem_in(json.dumps(content))


@cache
def _problem_in(text: str) -> str | None:
    """Remembered: of two stacks, and of what is tried with one, most manifests are the same."""
    content = json.loads(text)
    try:
        validator = _validator(str(content["apiVersion"]), str(content["kind"]))
    except FileNotFoundError:
        return f"there is no schema for {content['apiVersion']} {content['kind']}"
    error: ValidationError | None = best_match(validator.iter_errors(content))
    return f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}" if error else None


@cache
def _validator(api_version: str, kind: str) -> Draft202012Validator:
    """The one `kubernetes-validate --strict` uses; it would read both files anew for each manifest."""
    if api_version.startswith(CUSTOM):
        path = SCHEMAS / f"{api_version.replace('/', '-')}-{kind.lower()}.json"
        return Draft202012Validator(json.loads(path.read_text("utf-8")))
    folder = f"kubernetes-json-schema/v{KUBERNETES}.0-local-strict"
    group, _, version = api_version.rpartition("/")
    name = "-".join(filter(None, (kind.lower(), group.split(".")[0], version)))
    schema = utils.schema_contents(f"{folder}/{name}.json", KUBERNETES)
    return Draft202012Validator(schema, registry=_definitions(folder))


@cache
def _definitions(folder: str) -> Registry[Any]:
    definitions = Resource.from_contents(utils.schema_contents(f"{folder}/_definitions.json", KUBERNETES))
    registry: Registry[Any] = Registry()
    return definitions @ registry
