"""Folders: each path that a process opens lies on the right volume, with the right to it, and with no other right."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.checks.cluster import ROLE, Cluster, Mounted
from infra.checks.declared import OurContainer, folder_of_models, our_containers, process_of
from ratchet.service.settings import FleetSettings
from services.agent.settings import AgentSettings
from services.orchestrator.settings import OrchestratorSettings
from services.runner.settings import RunnerSettings
from services.scorer.settings import ScorerSettings
from services.trainer.settings import TrainerSettings

FOLDER_OF_PROGRAMS = "/programs"
"""The site's folder, as the file of programs names it (docs/infra.md)."""
READ, WRITE = "read", "write"
CLAIM, SCRATCH = ("claim",), ("scratch",)
SANDBOX = "RATCHET_SANDBOX_ISOLATION"


@dataclass(frozen=True, slots=True)
class Need:
    """A path that a process opens. `what` names the folder: all who need it must find the same one."""

    what: str
    path: Path | str
    right: str
    kinds: tuple[str, ...] = CLAIM

    @property
    def at(self) -> str:
        return str(self.path)


def folders_are_there_with_their_rights(cluster: Cluster) -> Iterator[str]:
    """each folder that a process opens is on the volume it must be on, with the right it needs; nothing else is"""
    behind: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for one in our_containers(cluster):
        if one.settings is None:
            continue
        needs = list(_needs(cluster, one, one.settings))
        for need in needs:
            mount = one.pods.mount_of(one.box, need.at)
            yield from _fault(cluster, one, need, mount)
            if mount and need.kinds == CLAIM:
                behind[need.what][mount.name].append(one.pods.owner.name)
        yield from _excess(one, needs)
    for what, claims in sorted(behind.items()):
        if len(claims) > 1:
            users = (", ".join(sorted(set(names))) for names in claims.values())
            yield f"the {what} of {' and of '.join(users)} lie apart"
    owners = [(claim, what) for what, claims in behind.items() for claim in claims]
    for claim in sorted({claim for claim, _ in owners}):
        if len(kinds := sorted(what for one, what in owners if one == claim)) > 1:
            yield f"claim {claim} is for {' and for '.join(kinds)}: one claim, one kind of folder"


def _fault(cluster: Cluster, one: OurContainer, need: Need, mount: Mounted | None) -> Iterator[str]:
    if mount is None or mount.kind not in need.kinds:
        where = f"{mount.kind} {mount.name}" if mount else "its image"
        yield f"{one}: its {need.what} ({need.at}) lie on {where}, not on a {' or '.join(need.kinds)}"
    elif mount.kind == "config" and Path(need.at).name not in (cluster.keys("ConfigMap", mount.name) or ()):
        yield f"{one}: its {need.what} ({need.at}) are no file of ConfigMap {mount.name}"
    elif mount.read_only and need.right == WRITE:
        yield f"{one} must write its {need.what} ({need.at}), and may only read"
    elif not mount.read_only and need.right == READ:
        yield f"{one} only reads its {need.what} ({need.at}), and may write"


def _excess(one: OurContainer, needs: list[Need]) -> Iterator[str]:
    for mount in one.pods.mounts(one.box):
        if mount.kind == "claim" and not any(mount.holds(need.at) for need in needs):
            yield f"{one} mounts claim {mount.name} at {mount.path}, and has nothing to do there"
        backups = mount.kind == "site-claim" and any(n.what == "backups" and mount.holds(n.at) for n in needs)
        if mount.kind in ("config", "secret", "site-secret", "site-claim") and not mount.read_only and not backups:
            yield f"{one} may write to {mount.kind} {mount.name}"


def _needs(cluster: Cluster, one: OurContainer, settings: FleetSettings) -> Iterator[Need]:
    yield Need("temporary files", one.variables.get("HOME", "/tmp"), WRITE, SCRATCH)
    runner = cluster.settings.runner
    if runner and runner.folder and one.pods.labels.get(ROLE) in ("runner", "installer"):
        yield Need("programs", FOLDER_OF_PROGRAMS, READ, ("site-claim",))
    process = process_of(one.pods)
    if process is None:
        yield from _of_commands(cluster, one, settings)
        return
    logs, adapters = process[1].logs, process[1].adapters
    if logs:
        yield Need("logs", settings.logs_dir, logs)
    if adapters:
        yield Need("adapters", settings.adapters_dir, adapters)
    yield Need("audit", settings.audit_dir, WRITE)
    yield Need("public keys", settings.api_public_keys or "nowhere", READ, ("secret",))
    match settings:
        case OrchestratorSettings():
            yield Need("index", settings.index_folder, WRITE, SCRATCH)
            yield Need("decision keys", settings.decision_keys_dir, WRITE)
        case AgentSettings():
            yield from _models(cluster, one, [settings.agent_model])
        case TrainerSettings():
            yield from _models(cluster, one, [settings.model_of(agent) for agent in settings.agents])
            if int(one.variables.get("RATCHET_TRAINER_PROCESSES", "1")) > 1:
                yield Need("shared memory", "/dev/shm", WRITE, SCRATCH)
        case RunnerSettings():
            yield from _of_runner(one, settings)
        case ScorerSettings():
            if "likelihood" in _strategy(settings):
                yield from _models(cluster, one, [settings.scorer_likelihood_model])
            if SANDBOX in one.variables:
                yield Need("workspaces", settings.workspace_cache, WRITE, SCRATCH)
    if settings.programs:
        yield Need("programs", settings.programs, READ, ("config",))


def _strategy(settings: ScorerSettings) -> str:
    return settings.auditor if settings.scorer_audits else settings.scorer


def _models(cluster: Cluster, one: OurContainer, names: list[str]) -> Iterator[Need]:
    """Models of the claim, or of a hub: what is downloaded is kept on it, so that it is downloaded once."""
    downloads = one.variables.get("HF_HUB_OFFLINE") == "0" and SANDBOX not in one.variables
    right = WRITE if downloads else READ
    paths = [*(name for name in names if name.startswith("/")), one.variables.get("HF_HOME", "~/.cache")]
    yield from (Need("models", path, right) for path in paths)
    if downloads and cluster.settings.hub_token_secret:
        yield Need("token of the hub", hub_token_at(one.variables), READ, ("site-secret",))


def hub_token_at(variables: Mapping[str, str]) -> str:
    """Return where a process looks for the site's token of the hub: a file of the Secret's key."""
    path = variables.get("HF_TOKEN_PATH", "")
    return path if path.endswith("/hf_token") else "/nowhere"


def _of_runner(one: OurContainer, settings: RunnerSettings) -> Iterator[Need]:
    yield Need("models", one.variables.get("HF_HOME", "nowhere"), READ)
    yield Need("rollouts", settings.runner_dir, WRITE)
    yield Need("runner token", settings.runner_api_token_file or "nowhere", READ)
    yield Need("workspaces", settings.workspace_cache, WRITE, SCRATCH)
    if settings.programs:
        yield Need("environments", settings.program_environments, READ)


def _of_commands(cluster: Cluster, one: OurContainer, settings: FleetSettings) -> Iterator[Need]:
    match one.pods.labels.get(ROLE):
        case "operator":
            yield Need("logs", settings.logs_dir, WRITE)
            yield Need("adapters", settings.adapters_dir, WRITE)
            yield Need("decision keys", settings.decision_keys_dir, WRITE)
            yield Need("audit", settings.audit_dir, READ)
        case "backup":
            yield Need("logs", settings.logs_dir, WRITE)  # it takes their locks
            yield Need("adapters", settings.adapters_dir, WRITE)
            yield Need("decision keys", settings.decision_keys_dir, READ)
            written = re.search(r"ratchet backup (?:--key-file (\S+) )?(/\S+)/", " ".join(one.box.get("command", [])))
            yield Need("backups", written[2] if written else "nowhere", WRITE, ("site-claim",))
            if cluster.settings.backups and cluster.settings.backups.key_secret:
                yield Need("backup key", written[1] if written and written[1] else "nowhere", READ, ("site-secret",))
        case "installer":
            yield Need("environments", settings.program_environments, WRITE)
            yield Need("programs", settings.programs or "nowhere", READ, ("config",))
        case "models":
            yield Need("models", folder_of_models(one.box), WRITE)
        case "tokens":
            runners = [
                other.settings for other in our_containers(cluster) if isinstance(other.settings, RunnerSettings)
            ]
            for runner in runners:
                file = str(runner.runner_api_token_file)
                yield Need("runner token", file, WRITE)
                yield Need("signing key", _signing_keys(one.box), READ, ("secret",))
                if f"{file}.new {file};" not in " ".join(one.box.get("command", [])):
                    yield Need("runner token", f"{file} (its script writes another)", WRITE, ("nowhere",))


def _signing_keys(box: Mapping[str, Any]) -> str:
    words = " ".join(box.get("command", [])).split()
    return words[words.index("--keys") + 1] if "--keys" in words else "nowhere"


def sidecars_see_what_their_agent_names(cluster: Cluster) -> Iterator[str]:
    """a vLLM beside an agent finds adapters and models where the agent names them, and may change no adapter"""
    for one in our_containers(cluster):
        for box in one.pods.spec.get("initContainers") or []:
            main, used = one.pods.mounts(one.box), []
            for need in _needs(cluster, one, one.settings) if one.settings else ():
                if need.what not in ("adapters", "models"):
                    continue
                used.append(one.pods.mount_of(box, need.at))
                if used[-1] not in main:
                    yield f"{one}: the {box['name']} beside it does not find the {need.what} at {need.at}"
            for mount in one.pods.mounts(box):
                if mount.kind in ("claim", "config") and mount not in used:
                    yield f"{one}: the {box['name']} beside it mounts {mount.path}, and has nothing to do there"


def claims_keep_what_cannot_be_made_again(cluster: Cluster) -> Iterator[str]:
    """claims that hold what nobody can make again are protected from a `pulumi destroy`, on a cluster that is kept"""
    made_again = {"models", "rollouts", "runner token", "environments"}
    kept = {
        mount.name
        for one in our_containers(cluster)
        for need in (_needs(cluster, one, one.settings) if one.settings else ())
        if need.kinds == CLAIM and need.what not in made_again and (mount := one.pods.mount_of(one.box, need.at))
    }
    for claim in cluster.all("PersistentVolumeClaim"):
        shared = claim.content["spec"]["accessModes"] == ["ReadWriteMany"]
        if shared and claim.resource.protected is not (claim.name in kept):
            yield f"{claim} is {'not ' * (claim.name in kept)}protected from `pulumi destroy`"
