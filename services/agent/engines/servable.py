"""Whether an adapter folder is one that every engine can serve: plain LoRA, whole, small enough. Reads files only.

vLLM answers the others with an internal error, or takes them and is wrong later: here they are refused with the reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ratchet.adapters.folder import CONTENT_FILES
from ratchet.service.errors import AdapterError

PLAIN: dict[str, tuple[Any, ...]] = {
    "peft_type": ("LORA",),
    "use_dora": (False, None),
    "modules_to_save": (None, []),
    "bias": ("none", None),
    "trainable_token_indices": (None, []),
    "alora_invocation_tokens": (None, []),
}


def check_servable(path: Path, *, max_rank: int | None = None) -> None:
    """Raises AdapterError with what to change."""
    missing = [name for name in CONTENT_FILES if not (path / name).is_file()]
    if missing:
        raise AdapterError(f"the adapter in {path} has no {' and no '.join(missing)}: restore it, or roll back")
    try:
        config = json.loads((path / "adapter_config.json").read_text())
    except ValueError as error:
        raise AdapterError(f"{path / 'adapter_config.json'} is not JSON ({error}): restore it, or roll back") from error
    for name, accepted in PLAIN.items():
        if name in config and config[name] not in accepted:
            raise AdapterError(f"the adapter in {path} has {name}={config[name]!r}; only plain LoRA can be served")
    ranks = [config.get("r", 0), *(config.get("rank_pattern") or {}).values()]
    if max_rank is not None and max(ranks) > max_rank:
        raise AdapterError(f"the adapter in {path} has rank {max(ranks)}; the engine takes {max_rank} at most")
