"""Replays the masks of the grammars that samples were held to, so that their tokens get the log-probabilities that the
engine sampled them with: among the tokens that were allowed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ratchet.grammars.masks import Bits, Grammars, free_masks, unpack_masks
from services.trainer.data.samples import TrainingSample

NEVER = float("-inf")


def masks_of(grammars: Grammars, sample: TrainingSample, width: int | None = None) -> Bits:
    """Return a mask for each token of the completion, and up to `width` masks that allow everything."""
    masks = free_masks(width or len(sample.completion), grammars.vocabulary)
    for start, end, text in sample.grammars:
        grammars.replay(text, sample.completion[start:end], masks[start:end])
    return masks


def stacked_masks(grammars: Grammars, samples: Sequence[TrainingSample]) -> torch.Tensor:
    """(samples, tokens, words): the masks of all, as wide as the longest completion."""
    width = max(len(sample.completion) for sample in samples)
    return torch.from_numpy(np.stack([masks_of(grammars, sample, width) for sample in samples]))


def masked_logps(logits: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
    """(…, vocabulary): log-probabilities among the tokens that the masks, (…, words), allow."""
    allowed = torch.from_numpy(unpack_masks(masks.cpu().numpy(), logits.shape[-1])).to(logits.device)
    return torch.log_softmax(logits.masked_fill(~allowed, NEVER), -1)
