"""Workspace: the files that a task is about, by reference. Artifact: what an answer changed in them."""

from __future__ import annotations

import re
from typing import Annotated, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator

from schemas.messages.base import Record, Sha256, absent

MAX_PATH_CHARS = 1024
PLAIN_PATH = r"^(?!\.{1,2}(/|$)|\.[gG][iI][tT](/|$))[^/\x00]+(/(?!\.{1,2}(/|$)|\.[gG][iI][tT](/|$))[^/\x00]+)*$"
"""The same as `_plain`, in JSON Schema's words."""

_TAKEN = "usr|bin|sbin|lib|lib32|lib64|libx32|etc|dev|proc|sys|run|tmp|task|tests|logs|solution|workspace"
SEEN_AT = rf"^/(?!({_TAKEN})(/|$))[\w-][\w.-]*(/[\w-][\w.-]*)*$"
"""An absolute path outside of what a sandbox is made of."""


def _plain(path: str) -> str:
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise ValueError("should be a plain relative path, without `..` and outside of .git")
    return path


def _outside(path: str) -> str:
    if not re.fullmatch(SEEN_AT, path):
        raise ValueError("should be an absolute path outside of what a sandbox is made of, such as /app")
    return path


FilePath = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_PATH_CHARS),
    AfterValidator(_plain),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_PATH_CHARS, "pattern": PLAIN_PATH}),
]
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Url = Annotated[str, StringConstraints(min_length=1, max_length=2048, pattern=r"^[^\x00-\x20\x7f]+$")]


SeenAt = Annotated[
    str,
    StringConstraints(min_length=1, max_length=MAX_PATH_CHARS),
    AfterValidator(_outside),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_PATH_CHARS, "pattern": SEEN_AT}),
]


class GitSource(Record):
    """A commit of a repository that can be read over HTTP."""

    url: Url = Field(description="As `git clone` takes it, without user and password.")
    commit: Commit
    submodules: bool = Field(False, description="With the submodules that the commit names.")


class ArchiveSource(Record):
    """A .tar.gz or .zip, as it lies there: a folder that everything in it is in stays."""

    url: Url
    sha256: Sha256


def _nothing(value: object) -> bool:
    return not value


SOURCES = ("files", "folder", "git", "archive")


class Workspace(Record):
    """Exactly one source. Only `files` travel in messages; the others are read by whoever needs them."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in SOURCES]
        }
    )

    files: dict[FilePath, str] | None = Field(None, exclude_if=absent, description="Small ones, by their paths.")
    folder: str | None = Field(
        None,
        exclude_if=absent,
        min_length=1,
        max_length=4096,
        description="Of the machine, below one that RATCHET_WORKSPACE_FOLDERS names.",
    )
    git: GitSource | None = Field(None, exclude_if=absent)
    archive: ArchiveSource | None = Field(None, exclude_if=absent)
    collect: tuple[FilePath, ...] = Field(
        (), max_length=64, exclude_if=_nothing, description="Files that are wanted whole, beside the patch."
    )

    seen_at: SeenAt | None = Field(
        None,
        exclude_if=absent,
        description="Another path at which a program finds its workspace, such as /app; it is at /workspace always.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if sum(getattr(self, name) is not None for name in SOURCES) != 1:
            raise ValueError("a workspace has one source: files, folder, git or archive")
        return self


class Artifact(Record):
    """The files that an answer left in its workspace."""

    patch: str = Field("", description="A unified diff in git's form against the workspace, for `git apply`.")
    files: dict[str, str] = Field(
        default_factory=dict, exclude_if=_nothing, description="Of those that the workspace collects, the text."
    )
    left_out: dict[str, str] = Field(
        default_factory=dict, exclude_if=_nothing, description="What was changed and is in neither, and why."
    )
    tree_sha256: Sha256 | None = Field(
        None, exclude_if=absent, description="Of the workspace as it was before: what the patch is against."
    )
