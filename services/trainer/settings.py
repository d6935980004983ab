"""The trainer's settings, on top of the fleet's."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, field_validator, model_validator
from pydantic_settings import NoDecode

from ratchet.service.entry_points import to_install
from ratchet.service.errors import TrainingRefused
from ratchet.service.settings import FleetSettings, names

Tracker = Literal["trackio", "wandb", "mlflow", "tensorboard"]
"""Transformers' names of them, which are also those of their packages."""


class TrainerSettings(FleetSettings):
    trainer_http_port: int = Field(8760, ge=0, le=65535, description="Port of the trainer's HTTP server.")
    trainer_model: str = Field(
        "models/small",
        description="The base model of the agents: a Hugging Face folder, hub name or known model; or one by agent: "
        "small=models/small,coder=org/model.",
    )
    trainer_model_revision: str | None = Field(None, description="Commit of a hub model; the newest if not set.")
    trainer_dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Number format of the base model's weights."
    )
    trainer_device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto takes the GPU if there is one.")
    trainer_attention: Literal["auto", "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention"] = (
        Field("auto", description="Attention of the base model, by Transformers' names; auto is its own choice.")
    )
    trainer_weights: Literal["full", "4bit"] = Field(
        "full", description=f"4bit keeps the base model's weights in 4 bits (QLoRA): {to_install('qlora')}."
    )
    trainer_processes: int = Field(
        1, ge=1, description="Processes of one run on a machine: as many as GPUs, started by `accelerate launch`."
    )
    trainer_machines: int = Field(1, ge=1, description="Machines that one run is spread over; they share all folders.")
    trainer_machine_rank: int = Field(
        0, ge=0, description="Number of this machine: 0 takes requests, the others join its runs."
    )
    trainer_main_address: str | None = Field(
        None,
        pattern=r"^[^\s:]+:\d+$",
        description="Where the other machines meet machine 0: host:port. The run uses more ports beside it.",
    )
    trainer_fsdp: bool = Field(
        False,
        description="Spread the base model over the processes (FSDP2), where one GPU can't hold it; else each has all.",
    )
    trainer_accelerate_config: str | None = Field(
        None,
        description="A file by `accelerate config`, for several machines, say: it goes before the two settings above.",
    )
    trainer_threads: int | None = Field(
        None,
        ge=1,
        description="torch threads on a CPU; if not set, one below 50 million parameters, else as many as there are "
        "idle cores, shared by the processes of a run.",
    )
    trainer_hyperparameters: dict[str, JsonValue] = Field(
        default_factory=dict, description="Defaults of all runs, as a JSON object; a request's own go before them."
    )
    trainer_checkpoint_every_s: float = Field(60.0, ge=0, description="Seconds between checkpoints; 0: each step.")
    trainer_attempts: int = Field(
        3, ge=1, description="How often a run whose process died is taken up again before it is given up as failed."
    )
    trainer_runs_at_once: int = Field(
        1, ge=1, le=64, description="Training runs at once, each in a process of its own; of an agent it is always one."
    )
    trainer_keep_jobs: int = Field(20, ge=1, description="Records of finished runs kept for each agent.")
    trainer_report_to: Annotated[tuple[Tracker, ...], NoDecode, BeforeValidator(names)] = Field(
        (),
        description="Trackers that get the figures of each step and of `ratchet eval`, by comma: trackio, wandb, "
        "mlflow, tensorboard; each is a package to install.",
    )
    trainer_once: bool = Field(
        False, description="Exit when there is nothing left to train: for a trainer that is started for each request."
    )

    @field_validator("trainer_report_to")
    @classmethod
    def _check_installed(cls, trackers: tuple[Tracker, ...]) -> tuple[Tracker, ...]:
        if missing := [name for name in trackers if find_spec(name) is None]:
            raise ValueError(f"not installed where the trainer runs: pip install {' '.join(missing)}")
        return trackers

    @model_validator(mode="after")
    def _check_machines(self) -> Self:
        if self.trainer_machines > 1 and self.trainer_main_address is None:
            raise ValueError("a run over several machines needs RATCHET_TRAINER_MAIN_ADDRESS=host:port of machine 0")
        if self.trainer_machine_rank >= self.trainer_machines:
            raise ValueError(
                f"machine {self.trainer_machine_rank} of {self.trainer_machines}: RATCHET_TRAINER_MACHINES is too small"
            )
        return self

    @property
    def trainer_launches(self) -> bool:
        """Tell whether runs are started by `accelerate launch`: several processes, or a configuration of its own."""
        return self.trainer_processes * self.trainer_machines > 1 or self.trainer_accelerate_config is not None

    def model_of(self, agent_id: str) -> str:
        """Raises TrainingRefused for an agent that none is given for."""
        if "=" not in self.trainer_model:
            return self.trainer_model
        pairs = (pair.partition("=") for pair in self.trainer_model.split(","))
        models = {agent.strip(): model.strip() for agent, _, model in pairs}
        if agent_id not in models:
            raise TrainingRefused(
                f"no base model is given for agent {agent_id}: add {agent_id}=… to RATCHET_TRAINER_MODEL"
            )
        return models[agent_id]
