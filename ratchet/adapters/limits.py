"""Limits of an adapter: its rank, its layers, and the most that is read of its files. check.py applies them.

RATCHET_ADAPTER_MAX_RANK is the rank limit of a fleet.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.messages.base import BaseModelIdentity

MOST_PATTERNS = 256
LARGEST_SCALING = 4096.0
LARGEST_RANK = 512
"""The largest rank of vLLM."""
LARGEST_NUMBER = 2**17
"""The bound of a weight, whatever the sign: this and more is refused."""

LINEAR_LAYERS = frozenset(
    {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "qkv_proj", "gate_up_proj"),
        *("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h", "c_attn", "c_proj", "c_fc"),
        *("fc1", "fc2", "out_proj", "in_proj_qkvz", "in_proj_ba"),
    }
)
"""The linear layers of the usual decoders, by the names transformers gives them: Llama, Qwen, Phi and alike; GPT-NeoX,
Falcon and GPT-2; OPT and the linear attention of Qwen. Not lm_head and embeddings: not every engine can."""

MOST_FILES = 256
LARGEST_JSON = 256 * 1024
"""Bytes of a configuration, a card or a manifest; those of PEFT and of the trainer have a few thousand."""
LARGEST_REPORT = 2 * 1024**2
"""Bytes of a training report: 3,000 steps have about a million. In memory it takes up to 71 MiB."""
LARGEST_FILE = 4 * 1024**3
"""Bytes of a file: rank 64 on every linear layer of 70 billion parameters is 3.3 GB in float32."""

LARGEST_HEADER = 1024 * 1024
"""Bytes. 80 layers with seven LoRA pairs each have 130 thousand."""
MOST_TENSORS = 8192
LONGEST_NAME = 512
MOST_DIMENSIONS = 8
MOST_NUMBERS = 2**25
"""The most numbers of one tensor: rank 512 on a layer 65,536 wide."""


@dataclass(frozen=True, slots=True)
class AdapterLimits:
    """The adapters that engines take.

    `base` None: any; a revision is compared where both sides know theirs, else the name.
    """

    max_rank: int = LARGEST_RANK
    base: BaseModelIdentity | None = None
    target_modules: frozenset[str] = LINEAR_LAYERS
