"""The agent's settings, on top of the fleet's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings
from schemas.messages.base import AgentId


class AgentSettings(FleetSettings):
    agent_id: AgentId = Field("small", description="Which of the fleet's agents this process is.")
    agent_http_port: int = Field(8710, ge=0, le=65535, description="Port of the agent's HTTP server.")
    agent_engine: str = Field(
        "transformers",
        description="What it generates with: transformers, vllm, openai, echo, scripted, or an entry point's name.",
    )
    agent_model: str = Field(
        "models/small",
        description="The base model: a Hugging Face folder, hub name or known model (smollm2); for vllm the name "
        "it serves.",
    )
    agent_model_revision: str | None = Field(None, description="Commit of a hub model; the newest if not set.")
    agent_tokenizer: str | None = Field(
        None,
        description="For vllm, echo and your own: folder or hub name of the tokenizer; "
        "without it vllm's server tokenizes.",
    )
    agent_dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Number format of the weights; auto: as they were saved on a GPU, float32 on a CPU."
    )
    agent_device: str = Field("auto", description="auto, cpu, or a torch device such as cuda:0.")
    agent_threads: int | None = Field(
        None,
        ge=1,
        description="torch threads on a CPU; if not set, one below 50 million parameters, else as many as there are "
        "idle cores.",
    )
    agent_max_batch: int = Field(64, ge=1, description="Samples generated at once.")
    agent_kv_cache_gb: float = Field(
        4.0,
        gt=0,
        description="GiB for keys and values of samples being generated, an eighth of it for common prefixes; what "
        "would need more waits.",
    )
    agent_prefetch: int = Field(
        64, ge=1, le=10_000, description="Tasks held at once: enough to fill the next batch while one is generated."
    )
    agent_max_adapters: int = Field(
        4, ge=1, description="Adapters kept loaded; the least recently used one goes first."
    )
    agent_seed: int | None = Field(None, description="Seed of the sampling; random if not set.")
    agent_vllm_url: str = Field("http://127.0.0.1:8000", description="An OpenAI-compatible server, without /v1.")
    agent_vllm_api_key: SecretStr | None = Field(None, description="Its API key, if it asks for one.")
    agent_generation_timeout_s: float = Field(
        600.0, gt=0, description="Seconds the server of vllm or openai may take for one task."
    )
    big_model: str = Field(
        "", description="For openai: base URL of any OpenAI-compatible server, such as https://api.openai.com/v1."
    )
    big_model_name: str = Field("", description="For openai: the name that the server knows the model by.")
    big_model_api_key: SecretStr | None = Field(None, description="For openai: the server's API key.")
    agent_echo_latency_s: float = Field(0.0, ge=0, description="For echo: seconds each answer takes.")

    agent_script: Path | None = Field(
        None,
        description="For scripted: the file (TOML) of what is said to what; its model is a folder with a tokenizer.",
    )

    @property
    def tokenizer_name(self) -> str | None:
        """Folder (absolute) or hub name of the model whose tokenizer makes its token ids; None if it is not known."""
        named = self.agent_model if self.agent_engine in ("transformers", "scripted") else self.agent_tokenizer
        return str(Path(named).absolute()) if named and Path(named).is_dir() else named

    def unusable_parts(self) -> list[str]:
        try:
            from services.agent.engines.installed import check_engine
        except ModuleNotFoundError:  # an image of another service has nothing of the agent but this file
            return []
        try:
            check_engine(self.agent_engine)
        except SettingsError as error:
            return [str(error)]
        return []
