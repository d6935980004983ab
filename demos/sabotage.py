"""A deliberately bad adapter, put past the gate by an operator, to show that live traffic finds it.

It is the primary's own adapter with what it learned turned around: every LoRA B matrix times −1.
"""

from __future__ import annotations

from array import array
from datetime import UTC, datetime
from pathlib import Path

from ratchet.adapters.folder import adapter_folder
from ratchet.adapters.manifest import read_card
from ratchet.adapters.publish import publish_adapter, registration
from ratchet.adapters.registry import RegistryStore
from ratchet.adapters.safetensors_file import SafetensorsFile
from ratchet.service.errors import AdapterError
from schemas.records.adapter_card import AdapterCard
from schemas.records.decision import DecisionDraft, Move, Validate

FACTOR = -1.0
WHO = "operator:demo"
REASON = "injected past the gate, to show that live traffic finds it"


def inject_bad_adapter(store: RegistryStore, agent_id: str) -> str:
    """The version of it, registered and called validated; the experiment begins by itself.

    Raises AdapterError where the primary is the base model, RegistryError, DiskFull and JournalError.
    """
    primary = store.read().agent(agent_id).primary
    folder = adapter_folder(store.folder, agent_id, primary)
    files: dict[str, Path | bytes] = {
        "adapter_config.json": folder / "adapter_config.json",
        "adapter_model.safetensors": turned_around(folder / "adapter_model.safetensors"),
    }
    card = AdapterCard(
        run_id=f"sabotage-of-{primary}",
        parent=primary,
        base=read_card(folder).base,
        algorithm="sabotage",
        hyperparameters={"factor": FACTOR},
        created=datetime.now(UTC),
    )
    move = registration(publish_adapter(files, card, store.folder, agent_id), store.folder)
    for each in (move, Validate(version=move.version)):
        _decide(store, agent_id, each)
    return move.version


def turned_around(weights: Path) -> bytes:
    """The file with each LoRA B matrix multiplied. Raises AdapterError for one that is not in float32."""
    content = bytearray(weights.read_bytes())
    for name, tensor in SafetensorsFile(weights).tensors.items():
        if ".lora_B." not in name:
            continue
        if tensor.dtype != "F32":
            raise AdapterError(f"{weights}: {name} is {tensor.dtype}; the demo's adapters are in F32")
        values = array("f", content[tensor.start : tensor.end])
        content[tensor.start : tensor.end] = array("f", (value * FACTOR for value in values)).tobytes()
    return bytes(content)


def _decide(store: RegistryStore, agent_id: str, move: Move) -> None:
    draft = DecisionDraft(agent_id=agent_id, move=move, who=WHO, at=datetime.now(UTC), reason=REASON)
    store.update(lambda _: draft)
