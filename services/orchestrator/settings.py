"""What the orchestrator can be told."""

from __future__ import annotations

from pydantic import Field

from schemas.work import Sampling
from services.settings import FleetSettings


class OrchestratorSettings(FleetSettings):
    """The shared settings, and its own."""

    orchestrator_http_port: int = Field(8700, ge=1, le=65535, description="Port of the orchestrator's HTTP server.")
    orchestrator_prefetch: int = Field(512, ge=1, le=10_000, description="Messages in hand at once, for each queue.")
    samples: int = Field(8, ge=1, le=64, description="Group size of tasks that do not say: answers sampled for each.")
    temperature: float = Field(1.0, ge=0, le=5, description="Sampling temperature; 0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus sampling; 1 filters nothing.")
    top_k: int = Field(0, ge=0, description="Top-k sampling; 0 filters nothing.")
    max_tokens: int = Field(256, ge=1, description="Tokens an answer may have.")
    task_deadline_s: float = Field(3600.0, gt=0, description="Seconds a task may take, where it names no deadline.")
    segment_bytes: int = Field(
        256 * 1024 * 1024, ge=4096, description="Size at which a log is sealed, compressed and begun anew, in bytes."
    )

    @property
    def sampling(self) -> Sampling:
        return Sampling(
            n=self.samples,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            max_tokens=self.max_tokens,
        )
