"""Settings of a process that runs what it does not trust: a part of its service's, beside the fleet's."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from workbench.sandbox.kinds import Isolation


class SandboxSettings(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, env_prefix="RATCHET_", extra="ignore")

    sandbox_isolation: Isolation = Field(
        Isolation.BWRAP,
        description="What has to stand around the runs, beside bubblewrap: bwrap (nothing), pod (a confined "
        "container), gvisor (one with gVisor's kernel). Refused where it is not so.",
    )
    sandbox_cgroup: Path | None = Field(
        None,
        description="Folder of cgroup v2 that the service may make groups in, with memory and pids; found by itself "
        "where the service's own will do.",
    )
    sandbox_require_cgroup: bool = Field(
        False, description="Refuse to run anything where no cgroup can be made, rather than to measure."
    )
    sandbox_runs_at_once: int = Field(
        4, ge=1, le=256, description="Sandboxed runs at once in this process; more wait their turn."
    )
