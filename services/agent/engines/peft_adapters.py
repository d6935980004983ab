"""LoRA adapters on a model in this process: loaded, forgotten, and chosen for each row of a batch.

Not thread-safe: all calls come from the thread that generates.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel
from peft.utils import set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load

from ratchet.adapters.check import check_lora
from ratchet.adapters.folder import WEIGHTS_NAME, read_file
from ratchet.adapters.limits import LARGEST_FILE, AdapterLimits
from ratchet.models.lora import peft_config
from ratchet.service.errors import AdapterError, one_line

BASE = "__base__"
"""PEFT's name for rows without an adapter."""
ANCHOR = "anchor"


class PeftAdapters:
    """Adapters are known by the names they are served under; PEFT's own keys may hold no dots and are numbers here."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._wrapped: Any = None
        self._keys: dict[str, str] = {}
        self._numbers = itertools.count(1)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._keys)

    def load(self, name: str, path: Path) -> None:
        """Raises AdapterError; the model is then as it was."""
        if name in self._keys:
            return
        config = peft_config(check_lora(path, AdapterLimits()), trainable=False)
        key = f"adapter{next(self._numbers)}"
        wrapped = self._wrap()
        try:
            wrapped.add_adapter(key, config)
            weights = load(read_file(path, WEIGHTS_NAME, LARGEST_FILE))
            self._check_complete(key, set_peft_model_state_dict(wrapped, weights, adapter_name=key))
            wrapped.eval()
        except (ValueError, RuntimeError, KeyError, TypeError, OSError, SafetensorError, AdapterError) as error:
            self._drop(key)
            raise AdapterError(one_line(f"the adapter in {path} does not fit the model: {error}")) from error
        self._keys[name] = key

    def _wrap(self) -> Any:
        """PEFT's wrapper always holds one adapter; this one, of rank 1, is never used."""
        if self._wrapped is None:
            self._wrapped = PeftModel(self._model, LoraConfig(r=1, target_modules="all-linear"), adapter_name=ANCHOR)
            self._wrapped.eval()
        return self._wrapped

    def _check_complete(self, key: str, loaded: Any) -> None:
        """PEFT fills what the file lacks with random numbers and skips what it does not know."""
        missing = [name for name in loaded.missing_keys if f".{key}." in name]
        if strange := [*missing, *loaded.unexpected_keys][:3]:
            raise AdapterError(f"its weights and its configuration disagree, for instance about {', '.join(strange)}")

    def unload(self, name: str) -> None:
        if key := self._keys.pop(name, None):
            self._drop(key)

    def _drop(self, key: str) -> None:
        if key in self._wrapped.peft_config:
            self._wrapped.set_adapter(ANCHOR, inference_mode=True)
            self._wrapped.delete_adapter(key)

    def generate(self, names: Sequence[str | None], **inputs: Any) -> Any:
        """`model.generate(**inputs)`, row i with adapter `names[i]` (None: the base model)."""
        if self._wrapped is None:
            return self._model.generate(**inputs)
        keys = [BASE if name is None else self._keys[name] for name in names]
        if len(set(keys)) > 1:
            self._wrapped.set_adapter(ANCHOR, inference_mode=True)
            self._wrapped.base_model.enable_adapter_layers()
            return self._wrapped.generate(adapter_names=keys, **inputs)
        self._use_for_all(keys[0])
        return self._model.generate(**inputs)

    def _use_for_all(self, key: str) -> None:
        """About 0.7 of the cost of a mixed batch."""
        if key == BASE:
            self._wrapped.base_model.disable_adapter_layers()
        else:
            self._wrapped.set_adapter(key, inference_mode=True)
            self._wrapped.base_model.enable_adapter_layers()
