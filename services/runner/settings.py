"""The runner's settings, on top of the fleet's, the sandbox's and those of workspaces."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings, none_if_empty
from schemas.messages.base import AgentId
from workbench.sandbox.settings import SandboxSettings
from workbench.workspaces.settings import WorkspaceSettings


def _by_agent(value: Any) -> Any:
    """`small=http://a:8710 http://b:8710,coder=http://c:8710`"""
    if not isinstance(value, str):
        return value
    found = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        agent, equals, urls = part.partition("=")
        if not equals or not urls.split():
            raise ValueError(f"{part!r} is no agent and its addresses: write small=http://127.0.0.1:8710")
        found[agent.strip()] = tuple(url.rstrip("/") for url in urls.split())
    return found


DEMO_AGENT: dict[AgentId, tuple[str, ...]] = {"small": ("http://127.0.0.1:8710",)}


class RunnerSettings(WorkspaceSettings, SandboxSettings, FleetSettings):
    runner_http_port: int = Field(8770, ge=0, le=65535, description="Port of the runner's HTTP server.")
    runner_agents: Annotated[dict[AgentId, tuple[str, ...]], NoDecode, BeforeValidator(_by_agent)] = Field(
        DEMO_AGENT,
        description="Where the agents are that serve the model to programs: small=http://host:8710, several by comma, "
        "replicas of one by blank.",
    )
    runner_scorer_url: str | None = Field(
        None,
        pattern=r"^https?://[^/]+$",
        description="Where the scorer is: http://host:8750. It is asked which answer passes first (`select: "
        "first-passing`); if not set, all runs finish.",
    )
    runner_tokenizer: str | None = Field(
        None, description="Folder or hub name of the model's tokenizer, where it is not what the agent says it is."
    )
    runner_api_token_file: Path | None = Field(
        None, description="File with a token of the role runner, where the fleet asks for tokens; read for each call."
    )
    profiles: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        None,
        description="File of profiles: which model plays each role of a program, also other providers' "
        "(docs/runner.md). Its keys are variables of this process.",
    )
    runner_memory_mb: Annotated[int | None, BeforeValidator(none_if_empty)] = Field(
        None,
        ge=64,
        description="Memory that rollouts may ask for at once (`memory_mb` of their programs' limits); that of the "
        "machine, or of the container, if not set.",
    )
    runner_cpus: Annotated[float | None, BeforeValidator(none_if_empty)] = Field(
        None,
        gt=0,
        description="Cores that rollouts may ask for at once (`cpus` of their programs' limits); those of the machine, "
        "or of the container, if not set.",
    )
    runner_dir: Path = Field(
        Path(".ratchet/runner"), description="Folder in which finished rollouts are kept until their task is answered."
    )
    runner_keep_gb: float = Field(
        1.0, gt=0, description="Room for them, in GB: beyond it no more are kept, and tasks wait."
    )

    def require_agents(self, agents: Iterable[str]) -> None:
        """Raises SettingsError for one whose address is not known."""
        if missing := sorted(set(agents) - set(self.runner_agents)):
            raise SettingsError(
                f"RATCHET_RUNNER_AGENTS does not say where agent {missing[0]} is: {missing[0]}=http://host:8710"
            )
