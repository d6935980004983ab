"""Settings of a process that reads workspaces: a part of its service's, beside the fleet's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


def names(value: Any) -> Any:
    """Split the text of a setting that is a list at its commas."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


class WorkspaceSettings(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, env_prefix="RATCHET_", extra="ignore")

    workspace_urls: Annotated[tuple[str, ...], NoDecode, BeforeValidator(names)] = Field(
        (),
        description="What URLs of repositories and archives may begin with, by comma, such as "
        "https://github.com/our-team/. None if not set.",
    )
    workspace_folders: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(names)] = Field(
        (), description="Folders of this machine that a workspace may lie below, by comma; none if not set."
    )
    workspace_cache: Path = Field(
        Path(".ratchet/workspaces"), description="Folder that what was fetched is kept in, for this user alone."
    )
    workspace_cache_gb: float = Field(5.0, gt=0, description="Room for it, in GB; what was unused longest goes first.")
    workspace_mb: int = Field(64, ge=1, le=2048, description="Largest workspace, unpacked, in MiB.")
    workspace_files: int = Field(20_000, ge=1, le=1_000_000, description="Most files of a workspace.")
    workspace_patch_kb: int = Field(
        1024,
        ge=1,
        le=65_536,
        description="Largest patch, in KiB, and as much again of collected files.",
    )
    workspace_fetch_s: float = Field(120.0, gt=0, description="Seconds that a repository or an archive may take.")
