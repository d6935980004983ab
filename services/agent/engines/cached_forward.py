"""A forward pass of rows in a RowCache, and which models it is right for."""

from __future__ import annotations

from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from services.agent.engines.row_cache import CacheShape, RowCache

ROPE_OF_LENGTH = frozenset({"dynamic", "longrope"})
"""Turns of a position that depend on how long the sequence becomes."""
TOLERANCE, ROUGH_TOLERANCE = 1e-4, 0.15
"""Log-probability, the mean over what the model would say: in float32, and in shorter numbers, which are rounded."""
TRIAL = ((2, 9), (11, 5))
"""Tokens computed and tokens that are then decoded, of each row of the trial: of different lengths."""


@torch.inference_mode()
def forward(
    model: Any, cache: RowCache, first: int, ids: torch.Tensor, positions: torch.Tensor, span: int
) -> torch.Tensor:
    """(rows, vocabulary): the logits after the last of `ids` (rows, tokens), at `positions` of the rows from `first`.

    `span`: positions up to the largest. Positions below 0 are padding.
    """
    places = torch.arange(span, device=ids.device)
    seen = positions.clamp(min=0)
    dtype = cache.shape.dtype
    mask = torch.zeros(len(ids), 1, ids.shape[1], span, dtype=dtype, device=ids.device)
    mask.masked_fill_(places > seen[:, None, :, None], torch.finfo(dtype).min)
    logits: torch.Tensor = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=seen,
        past_key_values=cache.in_hand(first, positions, span),
        use_cache=True,
        logits_to_keep=1,
    ).logits
    return logits[:, -1]


@torch.inference_mode()
def cache_shape(model: Any) -> CacheShape | str:
    """Return what the model keeps of a token, or why rows can't be kept as here: a sentence's end."""
    ids = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    try:
        cache = model(input_ids=ids, use_cache=True).past_key_values
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        return f"it can't be tried ({error})"
    if not isinstance(cache, DynamicCache) or any(type(layer) is not DynamicLayer for layer in cache.layers):
        return "not all of its layers keep a key and a value for each token"
    shapes = {(tensor.shape, tensor.dtype) for layer in cache.layers for tensor in (layer.keys, layer.values)}
    if len(shapes) != 1:
        return "the keys and values of its layers differ in shape"
    (((_, heads, _, width), dtype),) = shapes
    return CacheShape(len(cache.layers), heads, width, dtype, model.device)


def misfit(model: Any, shape: CacheShape) -> str | None:
    """Say why its rows can't be computed one token at a time beside each other, found by trying; None if they can."""
    rope = getattr(model.config.get_text_config(), "rope_parameters", None) or {}
    if rope.get("rope_type") in ROPE_OF_LENGTH:
        return f"its positions are of the kind {rope['rope_type']}"
    try:
        off = _largest_difference(model, shape)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        return f"it does not take rows of different lengths ({error})"
    tolerance = TOLERANCE if shape.dtype.itemsize >= torch.float32.itemsize else ROUGH_TOLERANCE
    return None if off <= tolerance else f"its log-probabilities would be off by {off:.4f}"


@torch.inference_mode()
def _largest_difference(model: Any, shape: CacheShape) -> float:
    """Return the largest difference of a log-probability between rows computed in two parts together and each whole
    alone."""
    cache = RowCache(shape, prefix_bytes=0)
    device = shape.device
    cache.reserve(len(TRIAL), max(map(sum, TRIAL)), 0)
    vocabulary = model.config.get_text_config().vocab_size
    rows = [torch.arange(3, 3 + sum(parts), device=device) * 7919 % vocabulary for parts in TRIAL]
    done = [0 for _ in TRIAL]
    found = 0.0
    for part in zip(*TRIAL, strict=True):
        width = max(part)
        ends = [before + tokens for before, tokens in zip(done, part, strict=True)]
        positions = torch.tensor(ends, device=device)[:, None] + torch.arange(-width, 0, device=device)
        ids = torch.stack([row[at.clamp(min=0)] for row, at in zip(rows, positions, strict=True)])
        logits = forward(model, cache, 0, ids, positions, max(ends))
        for row, end, mine in zip(rows, ends, logits, strict=True):
            alone = model(input_ids=row[None, :end]).logits[0, -1].float().log_softmax(-1)
            found = max(found, (alone.exp() * (mine.float().log_softmax(-1) - alone).abs()).sum().item())
        done = ends
    return found
