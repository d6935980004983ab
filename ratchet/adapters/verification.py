"""Is everything about the adapters as it was decided? The ledger's chain, the registry, and every folder on disk.

And whose decisions they are. Reads all of it and changes nothing. Each fault is a sentence that says what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ratchet.adapters.check import adapter_faults
from ratchet.adapters.decisions import Mark
from ratchet.adapters.folder import VERSION, adapter_sha256
from ratchet.adapters.limits import AdapterLimits
from ratchet.adapters.manifest import published_versions
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.taught_logs import check_logs
from ratchet.service.errors import RegistryError
from schemas.api.adapters import Verification
from schemas.records.registry import AdapterEntry, AgentAdapters, EntryState, Registry


def verify_registry(store: RegistryStore, limits: AdapterLimits, logs_dir: Path | None = None) -> Verification:
    """Reads every byte of every adapter and, where it is given, of the logs that teach."""
    faults, notes = registry_faults(store, limits), list[str]()
    if logs_dir is not None:
        with suppress(RegistryError):
            logs = check_logs(logs_dir, store.folder, store.read())
            faults, notes = [*faults, *logs.faults], logs.notes
    decisions = signed = 0
    last = Mark()
    with suppress(RegistryError):
        for line in store.ledger.read():
            decisions, signed, last = decisions + 1, signed + (line.decision.key is not None), line.end
    return Verification(
        ok=not faults, faults=faults, notes=notes, decisions=decisions, signed=signed, key=last.key, sha256=last.sha256
    )


def registry_faults(store: RegistryStore, limits: AdapterLimits) -> list[str]:
    """Empty if all is well. Reads every byte of every adapter."""
    try:
        decided = store.replay()
        registry = store.read()
    except RegistryError as error:
        return [str(error)]
    faults = list(_differences(store, registry, decided))
    for agent_id in sorted(registry.agents.keys() | _agents_on_disk(store.folder)):
        faults += _folder_faults(store.folder, agent_id, registry.agent(agent_id), limits)
    return faults


def entry_faults(folder: Path, entry: AdapterEntry, limits: AdapterLimits) -> list[str]:
    """Check one version whose folder should be there: is it as registered, and fit for traffic?"""
    if faults := adapter_faults(folder, limits):
        return faults
    if (found := adapter_sha256(folder)) != entry.sha256:
        registered = str(entry.sha256)[:8]
        return [f"{folder} is another adapter than was registered (sha256 {found[:8]}…, not {registered}…): restore it"]
    return []


def _differences(store: RegistryStore, registry: Registry, decided: Registry) -> Iterator[str]:
    if registry.revision < decided.revision:
        yield (
            f"{store.path} is at decision {registry.revision} of {decided.revision}, as after a crash: the next "
            f"change, or the orchestrator's start, catches up"
        )
    elif registry != decided:
        agents = sorted(
            a for a in registry.agents.keys() | decided.agents.keys() if registry.agent(a) != decided.agent(a)
        )
        yield (
            f"{store.path} is not what the decisions add up to (agents: {', '.join(agents) or 'none'}): it was changed "
            f"by hand; `ratchet adapters rebuild` takes the ledger's word"
        )


def _folder_faults(adapters_dir: Path, agent_id: str, agent: AgentAdapters, limits: AdapterLimits) -> Iterator[str]:
    for version, entry in agent.versions.items():
        folder = adapters_dir / agent_id / version
        if entry.folder is not None:
            yield from (f"{agent_id} {version}: {fault}" for fault in entry_faults(folder, entry, limits))
        elif folder.exists() and entry.state is EntryState.REJECTED:
            yield f"{folder} was refused before it was registered, so it is not used: delete it"
        elif folder.exists():
            yield f"{folder} should be gone: delete it, or start the orchestrator, which does"
    published = set(published_versions(adapters_dir, agent_id))
    for version in sorted(_folders(adapters_dir / agent_id) - agent.versions.keys()):
        folder = adapters_dir / agent_id / version
        if version in published:
            yield f"{folder} is published but not registered, so not used: run its training again, or delete it"
        else:
            yield f"{folder} is no published adapter, so not used: delete it"


def _agents_on_disk(adapters_dir: Path) -> set[str]:
    return {path.name for path in (adapters_dir.iterdir() if adapters_dir.is_dir() else ()) if _folders(path)}


def _folders(home: Path) -> set[str]:
    return {path.name for path in (home.iterdir() if home.is_dir() else ()) if VERSION.fullmatch(path.name)}
