"""The pod of a process: hardened containers, volumes for exactly what is mounted, GPU nodes for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

import pulumi
from pulumi_kubernetes.core.v1 import (
    AppArmorProfileArgs,
    CapabilitiesArgs,
    ConfigMapEnvSourceArgs,
    ConfigMapVolumeSourceArgs,
    ContainerArgs,
    ContainerPortArgs,
    EmptyDirVolumeSourceArgs,
    EnvFromSourceArgs,
    EnvVarArgs,
    EnvVarSourceArgs,
    ExecActionArgs,
    KeyToPathArgs,
    LifecycleArgs,
    LifecycleHandlerArgs,
    LocalObjectReferenceArgs,
    ObjectFieldSelectorArgs,
    PersistentVolumeClaimVolumeSourceArgs,
    PodSecurityContextArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    ResourceRequirementsArgs,
    SeccompProfileArgs,
    SecretEnvSourceArgs,
    SecretKeySelectorArgs,
    SecretVolumeSourceArgs,
    SecurityContextArgs,
    TolerationArgs,
    TopologySpreadConstraintArgs,
    VolumeArgs,
    VolumeMountArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from infra.process import (
    Claim,
    Files,
    Kind,
    Mount,
    OwnDisk,
    Process,
    Program,
    Scratch,
    SecretSettings,
    SiteClaim,
    SiteSecret,
    Source,
)
from infra.scheduling import priority_of
from infra.settings import Resources, Sandbox, StackSettings

MARGIN_S = 30
"""Seconds between the end of a drain and the kill."""
TEMPORARY = Mount(Scratch("temporary", "2Gi"), "/tmp")
SECRETS = Mount(SecretSettings(), "/run/secrets", read_only=True)


def pod(
    process: Process,
    settings: StackSettings,
    labels: dict[str, str],
    content_hash: pulumi.Output[str],
    main: Program | None = None,
) -> PodTemplateSpecArgs:
    """A change of configuration changes `content_hash`, so that the pods are replaced, one by one.

    `main`: what runs in it, if that is not the process's own program.
    """
    gpu = settings.gpu_nodes
    jobs = process.kind in (Kind.JOB_PER_MESSAGE, Kind.ONCE, Kind.SCHEDULED)
    return PodTemplateSpecArgs(
        metadata=ObjectMetaArgs(labels=labels, annotations={"ratchet/configuration": content_hash}),
        spec=PodSpecArgs(
            service_account_name=process.name,
            automount_service_account_token=process.leads_by_lease,
            enable_service_links=False,
            subdomain=f"{process.name}-nodes" if jobs and process.machines > 1 else None,
            priority_class_name=priority_of(process, settings),
            security_context=PodSecurityContextArgs(
                run_as_non_root=True,
                run_as_user=process.user,
                run_as_group=process.user,
                fs_group=process.user,
                fs_group_change_policy="OnRootMismatch",
                seccomp_profile=_seccomp(process, settings.sandbox),
                app_armor_profile=_app_armor(process, settings.sandbox),
            ),
            runtime_class_name=settings.sandbox.runtime_class if _on_gvisor(process, settings.sandbox) else None,
            image_pull_secrets=_pull_secrets(settings),
            init_containers=[_container(process.beside, process, settings)] if process.beside else None,
            containers=[_container(main or process.main, process, settings)],
            volumes=list(_volumes(process)),
            termination_grace_period_seconds=process.drain_s + MARGIN_S,
            restart_policy="Never" if jobs else None,
            node_selector=gpu.node_selector if process.gpus else None,
            tolerations=[TolerationArgs(**toleration.model_dump()) for toleration in gpu.tolerations]
            if process.gpus
            else None,
            topology_spread_constraints=None if jobs or process.worker else _spread(process, labels),
        ),
    )


def _on_gvisor(process: Process, sandbox: Sandbox) -> bool:
    return process.sandboxes and sandbox.isolation == "gvisor"


def _in_pod(process: Process, sandbox: Sandbox) -> bool:
    return process.sandboxes and sandbox.isolation == "pod"


def _seccomp(process: Process, sandbox: Sandbox) -> SeccompProfileArgs:
    """Bubblewrap makes namespaces and mounts, which the runtime's own profile refuses; gVisor's kernel has neither."""
    if _in_pod(process, sandbox):
        return SeccompProfileArgs(type="Localhost", localhost_profile=sandbox.seccomp_profile)
    return SeccompProfileArgs(type="RuntimeDefault")


def _app_armor(process: Process, sandbox: Sandbox) -> AppArmorProfileArgs | None:
    if sandbox.apparmor_profile is None or not _in_pod(process, sandbox):
        return None
    return AppArmorProfileArgs(type="Localhost", localhost_profile=sandbox.apparmor_profile)


def _pull_secrets(settings: StackSettings) -> list[LocalObjectReferenceArgs] | None:
    return [LocalObjectReferenceArgs(name=settings.images.pull_secret)] if settings.images.pull_secret else None


def _container(program: Program, process: Process, settings: StackSettings) -> ContainerArgs:
    beside = program is process.beside
    return ContainerArgs(
        name=program.name,
        image=program.image,
        command=list(program.command) or None,
        args=list(program.args) or None,
        env=list(_environment(program)),
        env_from=None if beside else list(_environment_sources(process)),
        ports=[ContainerPortArgs(name=port.name, container_port=port.number) for port in program.ports],
        volume_mounts=[_mount(mount) for mount in _mounts(program, process)],
        resources=resources(program.resources, settings.gpu_nodes.resource),
        startup_probe=program.startup,
        liveness_probe=program.liveness,
        readiness_probe=program.readiness,
        lifecycle=_before_stop(program.before_stop),
        # A sidecar starts before the process and ends after it: an agent's drain still finds its vLLM.
        restart_policy="Always" if beside else None,
        security_context=SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesArgs(drop=["ALL"]),
        ),
    )


def resources(wanted: Resources, gpu: str) -> ResourceRequirementsArgs:
    gpus = {gpu: str(wanted.gpus)} if wanted.gpus else {}
    return ResourceRequirementsArgs(
        requests={"cpu": wanted.cpu, "memory": wanted.memory} | gpus, limits={"memory": wanted.memory} | gpus
    )


def _environment(program: Program) -> Iterator[EnvVarArgs]:
    """A name given first can be used in the values after it: `$(POD_NAME)`."""
    of_all = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    for name, path in (of_all | dict(program.fields)).items():
        yield EnvVarArgs(name=name, value_from=EnvVarSourceArgs(field_ref=ObjectFieldSelectorArgs(field_path=path)))
    yield from (
        EnvVarArgs(name=name, value=value) for name, value in ({"HOME": "/tmp"} | dict(program.environment)).items()
    )
    for name, (secret, key) in program.site_secrets.items():
        selected = SecretKeySelectorArgs(name=secret, key=key)
        yield EnvVarArgs(name=name, value_from=EnvVarSourceArgs(secret_key_ref=selected))


def _environment_sources(process: Process) -> Iterator[EnvFromSourceArgs]:
    if process.environment:
        yield EnvFromSourceArgs(config_map_ref=ConfigMapEnvSourceArgs(name=process.name))
    if process.secrets and not process.reads_secret_files:
        yield EnvFromSourceArgs(secret_ref=SecretEnvSourceArgs(name=process.name))


def _before_stop(words: tuple[str, ...]) -> LifecycleArgs | None:
    return LifecycleArgs(pre_stop=LifecycleHandlerArgs(exec_=ExecActionArgs(command=list(words)))) if words else None


def _mount(mount: Mount) -> VolumeMountArgs:
    return VolumeMountArgs(
        name=mount.source.name, mount_path=mount.path, sub_path=mount.file, read_only=mount.read_only or None
    )


def _mounts(program: Program, process: Process) -> tuple[Mount, ...]:
    """A sidecar sees none of the secrets of the process it is beside."""
    secrets = (SECRETS,) if process.reads_secret_files and program is process.main else ()
    return (*program.mounts, *secrets, TEMPORARY)


def _volumes(process: Process) -> Iterator[VolumeArgs]:
    """A disk of its own is not a volume of the pod: the cluster's claim template gives it."""
    sources = dict.fromkeys(mount.source for program in process.programs for mount in _mounts(program, process))
    yield from (_volume(source, process) for source in sources if not isinstance(source, OwnDisk))


def _volume(source: Source, process: Process) -> VolumeArgs:
    match source:
        case Claim(name):
            return VolumeArgs(name=name, persistent_volume_claim=PersistentVolumeClaimVolumeSourceArgs(claim_name=name))
        case SiteClaim(claim, writable):
            claimed = PersistentVolumeClaimVolumeSourceArgs(claim_name=claim, read_only=not writable)
            return VolumeArgs(name=source.name, persistent_volume_claim=claimed)
        case Files(secret=True):
            return VolumeArgs(
                name=source.name, secret=SecretVolumeSourceArgs(secret_name=f"{process.name}-files", default_mode=0o440)
            )
        case Files():
            return VolumeArgs(name=source.name, config_map=ConfigMapVolumeSourceArgs(name=f"{process.name}-files"))
        case SecretSettings(name):
            items = [KeyToPathArgs(key=key, path=key.lower()) for key in process.secrets]
            secret = SecretVolumeSourceArgs(secret_name=process.name, default_mode=0o440, items=items)
            return VolumeArgs(name=name, secret=secret)
        case SiteSecret(secret_name):
            mounted = SecretVolumeSourceArgs(secret_name=secret_name, default_mode=0o440)
            return VolumeArgs(name=source.name, secret=mounted)
        case Scratch(name, size, in_memory):
            folder = EmptyDirVolumeSourceArgs(medium="Memory" if in_memory else None, size_limit=size)
            return VolumeArgs(name=name, empty_dir=folder)
    raise TypeError(f"no volume is made of {source!r}")


def _spread(process: Process, labels: dict[str, str]) -> list[TopologySpreadConstraintArgs]:
    """Spread replicas over nodes and zones; strictly over nodes where two on one node are worth no more than one."""
    return [
        TopologySpreadConstraintArgs(
            max_skew=1,
            topology_key=key,
            when_unsatisfiable="DoNotSchedule" if strict else "ScheduleAnyway",
            label_selector=LabelSelectorArgs(match_labels=labels),
        )
        for key, strict in (
            ("kubernetes.io/hostname", process.spread_strictly),
            ("topology.kubernetes.io/zone", False),
        )
    ]
