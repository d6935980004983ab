"""One pass over the same completions by each trainer, in the process this is called in."""

from __future__ import annotations

import itertools
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from bench.training.workloads import GROUP, Workload
from services.trainer.algorithms.algorithm import TrainerInputs
from services.trainer.algorithms.grpo import advantage_targets, loss_arguments
from services.trainer.algorithms.hyperparameters import GrpoHyperparameters
from services.trainer.algorithms.logged_trainer import LoggedTrainer
from services.trainer.data.samples import TrainingSample

RATE = 1e-4


def measure(name: str, workload: Workload) -> dict[str, float]:
    """Return samples a second (of all logged) and a CPU-second, and this process's peak memory in MB."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    samples = workload.samples()
    with tempfile.TemporaryDirectory() as folder:
        trainer = CONTESTANTS[name](workload, samples, Path(folder))
        began, cpu = time.perf_counter(), time.process_time()
        trainer.train()
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
    return {
        "samples_per_s": len(samples) / seconds,
        "samples_per_cpu_s": len(samples) / cpu_seconds,
        "peak_mb": _peak_mb(),
    }


def ours(workload: Workload, samples: list[TrainingSample], folder: Path) -> Any:
    knobs = GrpoHyperparameters(learning_rate=RATE, epochs=1, batch=workload.batch)
    groups = [[sample.score for sample in group] for group in _groups(samples)]
    spread = [number for number, scores in enumerate(groups) if max(scores) > min(scores)]
    kept = [sample for sample in samples if sample.group in spread]
    inputs = TrainerInputs(
        policy=_policy(workload),
        tokenizer=workload.tokenizer(),
        samples=kept,
        folder=folder,
        seed=0,
        temperature=1.0,
        learning_rate=RATE,
        on_gpu=False,
    )
    targets = advantage_targets(inputs.scores, knobs.scale, knobs.negative_weight)
    return LoggedTrainer(inputs, knobs, targets, **loss_arguments(knobs))


def stock(workload: Workload, samples: list[TrainingSample], folder: Path) -> Any:
    """TRL as it is: a rollout function hands it the logged completions, a reward function their scores."""
    groups = _groups(samples)
    trainer = GRPOTrainer(
        _policy(workload),
        lambda prompts, score, **_: score,
        args=GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=workload.trl_rows,
            gradient_accumulation_steps=workload.batch // workload.trl_rows,
            num_generations=GROUP,
            num_train_epochs=1,
            max_completion_length=max(len(sample.completion) for sample in samples),
            learning_rate=RATE,
            lr_scheduler_type="constant",
            shuffle_dataset=False,
            use_cpu=True,
            bf16=False,
            activation_checkpointing=False,
            save_strategy="no",
            logging_steps=1,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=_prompts(len(groups)),
        processing_class=workload.tokenizer(),
        rollout_func=_replay(groups),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _replay(groups: list[list[TrainingSample]]) -> Callable[..., dict[str, Any]]:
    def replay(prompts: list[str], trainer: Any) -> dict[str, Any]:
        rows = [groups[int(prompt)][index % GROUP] for index, prompt in enumerate(prompts)]
        return {
            "prompt_ids": [list(row.prompt) for row in rows],
            "completion_ids": [list(row.completion) for row in rows],
            "logprobs": [list(row.logprobs) for row in rows],
            "score": [float(row.score) for row in rows],
        }

    return replay


def _prompts(count: int) -> Any:
    from datasets import Dataset

    return Dataset.from_dict({"prompt": [str(number) for number in range(count)]})


def _groups(samples: list[TrainingSample]) -> list[list[TrainingSample]]:
    return [list(group) for _, group in itertools.groupby(samples, key=lambda sample: sample.group)]


def _policy(workload: Workload) -> Any:
    config = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(workload.model(), config)


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


CONTESTANTS: dict[str, Callable[[Workload, list[TrainingSample], Path], Any]] = {
    "ratchet": ours,
    "TRL": stock,
}
