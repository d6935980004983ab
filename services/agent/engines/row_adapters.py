"""LoRA adapters on a model in this process: loaded, forgotten, and chosen for each row of a batch.

The model stays as it is: a hook on each adapted linear layer adds what the adapters of the batch say, all of them as
one LoRA as wide as their ranks together, of which each row sees its own part. Rows of the base model see none.
The sums are PEFT's: in float32 where the model's numbers are shorter. Not thread-safe: all calls come from the thread
that generates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft.tuners.tuners_utils import check_target_module_exists
from safetensors import SafetensorError
from safetensors.torch import load
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

from ratchet.adapters.check import LORA_WEIGHT, check_lora
from ratchet.adapters.folder import WEIGHTS_NAME, read_file
from ratchet.adapters.limits import LARGEST_FILE, AdapterLimits
from ratchet.adapters.lora_config import LoraConfig
from ratchet.models.loading import peft_config
from ratchet.service.errors import AdapterError, one_line


@dataclass(frozen=True, slots=True)
class Pair:
    """`down` (rank, inputs) and `up` (outputs, rank), which has the scaling in it."""

    down: torch.Tensor
    up: torch.Tensor


@dataclass(slots=True)
class Layer:
    """One linear layer, the pairs of the adapters that have one for it, and what the batch in hand needs of them."""

    module: torch.nn.Module
    pairs: dict[str, Pair] = field(default_factory=dict)
    wide: Pair | None = None
    share: torch.Tensor | None = None
    """(rows, rank) of `wide`: 1 where the row has that part; None: all rows have all of it."""

    def add(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> Any:
        if self.wide is None:
            return None
        low = linear(inputs[0].to(self.wide.down.dtype), self.wide.down)
        if self.share is not None:
            low = (low.view(len(self.share), -1, low.shape[-1]) * self.share[:, None]).view(low.shape)
        return (output + linear(low, self.wide.up)).to(output.dtype)


class RowAdapters:
    """Adapters are known by the names they are served under."""

    def __init__(self, model: torch.nn.Module) -> None:
        linears = (torch.nn.Linear, Conv1D)
        self._layers = {path: Layer(module) for path, module in model.named_modules() if isinstance(module, linears)}
        self._hooked: set[str] = set()
        self._names: set[str] = set()
        self._rows: tuple[str | None, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._names)

    def load(self, name: str, path: Path) -> None:
        """Raises AdapterError; nothing has changed then."""
        if name in self._names:
            return
        config = check_lora(path, AdapterLimits())
        try:
            pairs = self._pairs(config, load(read_file(path, WEIGHTS_NAME, LARGEST_FILE)))
        except (ValueError, RuntimeError, KeyError, TypeError, OSError, SafetensorError, AdapterError) as error:
            raise AdapterError(one_line(f"the adapter in {path} does not fit the model: {error}")) from error
        for layer, pair in pairs.items():
            self._layers[layer].pairs[name] = pair
            if layer not in self._hooked:
                self._hooked.add(layer)
                self._layers[layer].module.register_forward_hook(self._layers[layer].add)
        self._names.add(name)

    def _pairs(self, config: LoraConfig, weights: dict[str, torch.Tensor]) -> dict[str, Pair]:
        """Return the pairs by layer.

        Every layer that the configuration adapts has both halves, of its own width; no other has.
        """
        named = {LORA_WEIGHT.fullmatch(name): weight for name, weight in weights.items()}
        halves = {(name["path"], name["side"]): weight for name, weight in named.items() if name is not None}
        wanted = peft_config(config, trainable=False)
        expected = {path for path in self._layers if check_target_module_exists(wanted, path)}
        if strange := sorted({path for path, _ in halves} ^ expected)[:3]:
            raise AdapterError(f"its weights and its configuration disagree, for instance about {', '.join(strange)}")
        return {path: self._pair(path, config, halves[path, "A"], halves[path, "B"]) for path in expected}

    def _pair(self, path: str, config: LoraConfig, down: torch.Tensor, up: torch.Tensor) -> Pair:
        weight: torch.Tensor = self._layers[path].module.weight  # type: ignore[assignment]
        outputs, inputs = weight.T.shape if isinstance(self._layers[path].module, Conv1D) else weight.shape
        if (down.shape[1], up.shape[0]) != (inputs, outputs):
            shapes = f"A {tuple(down.shape)} and B {tuple(up.shape)}"
            raise AdapterError(f"{path} takes {inputs} numbers and gives {outputs}, its LoRA has the shapes {shapes}")
        return Pair(down.to(weight.device, torch.float32), up.to(weight.device, torch.float32) * config.scaling(path))

    def unload(self, name: str) -> None:
        self._names.discard(name)
        self.use(())
        for layer in self._layers.values():
            layer.pairs.pop(name, None)

    def use(self, rows: Sequence[str | None]) -> None:
        """Answer row i of a batch with adapter `rows[i]` from now on; None is the base model. No rows: all base."""
        if tuple(rows) == self._rows:
            return
        if set(rows) != set(self._rows):
            self._widen(sorted({name for name in rows if name is not None}))
        self._rows = tuple(rows)
        self._share()

    def _widen(self, names: Sequence[str]) -> None:
        for path in self._hooked:
            layer = self._layers[path]
            pairs = [layer.pairs[name] for name in names if name in layer.pairs]
            layer.wide = _side_by_side(pairs) if pairs else None

    def _share(self) -> None:
        shares: dict[tuple[tuple[str, int], ...], torch.Tensor | None] = {}
        for path in self._hooked:
            layer = self._layers[path]
            if layer.wide is None:
                continue
            names = sorted({name for name in self._rows if name in layer.pairs})
            parts = tuple((name, len(layer.pairs[name].down)) for name in names if name is not None)
            if parts not in shares:
                shares[parts] = self._part_of_each_row(parts, layer.wide.down)
            layer.share = shares[parts]

    def _part_of_each_row(self, parts: Sequence[tuple[str, int]], like: torch.Tensor) -> torch.Tensor | None:
        if set(self._rows) == {name for name, _ in parts} and len(parts) == 1:
            return None
        owners = [name for name, rank in parts for _ in range(rank)]
        own = [[float(name == owner) for owner in owners] for name in self._rows]
        return torch.tensor(own, device=like.device, dtype=like.dtype)


def _side_by_side(pairs: Sequence[Pair]) -> Pair:
    if len(pairs) == 1:
        return pairs[0]
    return Pair(torch.cat([pair.down for pair in pairs]), torch.cat([pair.up for pair in pairs], dim=1))
