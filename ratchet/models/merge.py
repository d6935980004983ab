"""An adapter merged into its base model: `python -m ratchet.models.merge`.

Its own process, because it imports torch. What it says goes to stderr; the last thing, on stdout, is one line of JSON
with the largest difference in log-probability that was seen between the two ways to apply the adapter. Exit code 1
with a sentence where it can't be merged.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors import SafetensorError
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from ratchet.adapters.check import check_lora, other_base
from ratchet.adapters.limits import AdapterLimits
from ratchet.models.loading import DType, load_language_model, peft_config
from ratchet.service.errors import EngineError, RatchetError

TOLERANCE = 5e-2
"""Tolerance in nats of any token's log-probability: 16-bit weights round the sum of two matrices once, not twice."""
PROBED_TOKENS = 64


def merge(name: str, adapter: Path, out: Path, dtype: DType, max_rank: int) -> float:
    """Save base model and adapter as one, with the tokenizer. The largest difference, in nats, to applying it apart.

    Raises EngineError where the base model is another than the adapter's or the merged model says something else.
    """
    language_model = load_language_model(name, dtype=dtype, device="cpu", threads=None)
    if (trained_on := other_base(adapter, language_model.identity.revision)) is not None:
        raise EngineError(
            f"the adapter was trained on {trained_on}, and {name} is {language_model.identity}: name that model with "
            f"--model"
        )
    config = peft_config(check_lora(adapter, AdapterLimits(max_rank)), trainable=False)
    policy: Any = PeftModel.from_pretrained(language_model.model, str(adapter), config=config).eval()
    probe = torch.randint(0, policy.config.vocab_size, (1, PROBED_TOKENS), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        apart = policy(probe).logits.float().log_softmax(-1)
    merged = policy.merge_and_unload()
    with torch.inference_mode():
        together = merged(probe).logits.float().log_softmax(-1)
    likely = apart > torch.log(torch.tensor(1e-3))
    gap = float((together - apart)[likely].abs().max())
    if not gap <= TOLERANCE:
        raise EngineError(f"the merged model's log-probabilities are off by {gap:.3f} nats: try --dtype float32")
    merged.save_pretrained(out)
    language_model.tokenizer.save_pretrained(out)
    return gap


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m ratchet.models.merge", description=__doc__)
    parser.add_argument("model", help="the base model: a folder, a known model or a hub name")
    parser.add_argument("--adapter", type=Path, required=True, help="the adapter's folder")
    parser.add_argument("--out", type=Path, required=True, help="an empty folder")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto")
    parser.add_argument("--max-rank", type=int, default=64)
    given = parser.parse_args(arguments)
    disable_progress_bar()
    set_verbosity_error()
    try:
        gap = merge(given.model, given.adapter, given.out, given.dtype, given.max_rank)
    except (OSError, ValueError, RuntimeError, SafetensorError, RatchetError) as error:
        sys.exit(str(error))
    sys.stdout.write(json.dumps({"largest_difference": round(gap, 6)}) + "\n")


if __name__ == "__main__":
    main()
