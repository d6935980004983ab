"""Makes a plain Hugging Face folder of a known model's GGUF file and proves it: `python -m ratchet.models.convert`.

Its own process, because it imports torch. Progress goes to stderr, a line a step; the last thing, on stdout, is one
line of JSON with what the proof gave. Exit code 1 with a sentence where it can't be made, or says what it should not.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils.logging import disable_progress_bar, set_verbosity_error

from ratchet.models.known import KNOWN, Proof
from ratchet.models.loading import LanguageModel, content_sha256, load_language_model
from ratchet.models.tokenization import completion_text, prompt_ids
from ratchet.service.errors import EngineError, RatchetError

LONGEST_ANSWER = 32


def convert(gguf: Path, out: Path) -> None:
    """Unpack the weights to bfloat16 and save them with configuration and tokenizer, as models of the hub are."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    unpacked = GgufConfig(dequantize=True)
    model: Any = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=unpacked, dtype=torch.bfloat16
    )
    model.config.__dict__.pop("quantization_config", None)
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    for file in out.iterdir():
        file.chmod(0o644)


def prove(folder: Path, proof: Proof) -> dict[str, Any]:
    """Ask the model and return its answers. Raises EngineError where one is not as it should be."""
    model = load_language_model(str(folder), dtype="float32", device="cpu")
    answer, logprob = greedy_answer(model, proof.question), mean_logprob(model, proof.text)
    if answer != proof.answer:
        raise EngineError(f"asked {proof.question!r} it answered {answer!r} and not {proof.answer!r}")
    if not abs(logprob - proof.logprob) <= proof.tolerance:
        raise EngineError(f"the log-probability of {proof.text!r} is {logprob:.4f} a token and not {proof.logprob:.4f}")
    return {"answer": answer, "logprob": round(logprob, 4), "sha256": content_sha256(folder)}


@torch.inference_mode()
def greedy_answer(model: LanguageModel, question: str) -> str:
    ids = torch.tensor([prompt_ids(model.tokenizer, question)])
    said = model.model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=LONGEST_ANSWER
    )
    return completion_text(model.tokenizer, said[0, ids.shape[1] :].tolist()).strip()


@torch.inference_mode()
def mean_logprob(model: LanguageModel, text: str) -> float:
    """Return the mean log-probability in nats a token, of the tokens after the first."""
    ids = torch.tensor([model.tokenizer.encode(text)])
    logprobs = model.model(ids).logits[0, :-1].float().log_softmax(-1)
    return float(logprobs.gather(-1, ids[0, 1:, None]).mean())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m ratchet.models.convert", description=__doc__)
    parser.add_argument("name", choices=sorted(KNOWN))
    parser.add_argument("--gguf", type=Path, required=True, help="the GGUF file")
    parser.add_argument("--out", type=Path, required=True, help="the folder to make")
    given = parser.parse_args(arguments)
    disable_progress_bar()
    set_verbosity_error()
    try:
        sys.stderr.write("converting to a Hugging Face folder in bfloat16\n")
        convert(given.gguf, given.out)
        sys.stderr.write("checking what it says\n")
        found = prove(given.out, KNOWN[given.name].proof)
    except (OSError, ValueError, RuntimeError, RatchetError) as error:
        sys.exit(f"{given.name} can't be made of {given.gguf.name}: {error}")
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
