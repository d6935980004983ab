"""The policy of tools: a file in TOML, every entry of which has a safe default.

[operations]
http_get = "allow"            # allow, ask or deny; by name

[http]
hosts = ["api.example.com", "*.example.org"]
"""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from schemas.messages.base import explain
from workbench.errors import PolicyError
from workbench.tools.operation import Decision, Operation

MIB = 1024 * 1024
Bytes = Annotated[int, Field(ge=1, le=1024 * MIB)]
Seconds = Annotated[float, Field(gt=0, le=3600)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(_Part):
    """Limits of every operation."""

    answer_characters: int = Field(16_000, ge=500, le=48_000, description="Of what a model reads of an answer.")
    seconds: Seconds = Field(300.0, description="Of any call, whatever it does.")
    file_bytes: Bytes = Field(8 * MIB, description="Of a file that is read, searched or written whole.")
    entries: int = Field(20_000, ge=1, le=1_000_000, description="Files and folders looked at by one call.")
    tree_bytes: Bytes = Field(128 * MIB, description="Of a workspace that goes into the sandbox, .git included.")


class Tests(_Part):
    """Settings of the project's tests."""

    seconds: Seconds = Field(120.0, description="Wall clock of one run.")
    memory_bytes: Bytes = Field(1024 * MIB, description="Of one run.")
    processes: int = Field(128, ge=1, le=4096, description="Of one run, threads included.")
    mounts: tuple[Path, ...] = Field((), description="Folders of the host that a run sees, read-only.")
    path: tuple[str, ...] = Field((), description="Folders that go before /usr/bin in a run's PATH.")
    environment: Mapping[str, str] = Field({}, description="Variables that a run finds.")


class Http(_Part):
    """Servers that may be asked."""

    hosts: tuple[str, ...] = Field(("*",), description="Names, or *.name for all below one; * for all.")
    ports: tuple[int, ...] = Field((80, 443), description="TCP ports.")
    networks: tuple[str, ...] = Field((), description="Address ranges that are reached although they are not public.")
    seconds: Seconds = Field(30.0, description="Of a request, redirects included.")
    answer_bytes: Bytes = Field(MIB, description="Of an answer's body.")
    download_bytes: Bytes = Field(64 * MIB, description="Of a download.")
    request_bytes: Bytes = Field(MIB, description="Of a request's body.")
    redirects: int = Field(5, ge=0, le=20, description="Of GET and HEAD; nothing else is redirected.")

    @field_validator("networks")
    @classmethod
    def _are_networks(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for one in given:
            ipaddress.ip_network(one)
        return given


class Database(_Part):
    seconds: Seconds = Field(10.0, description="Of one statement.")
    rows: int = Field(200, ge=1, le=10_000, description="Rows that a query gives.")
    changed_rows: int = Field(1000, ge=1, le=1_000_000, description="Rows that one call may change.")
    file_bytes: Bytes = Field(64 * MIB, description="Of a database file.")


class Docker(_Part):
    socket: Path = Field(Path("/var/run/docker.sock"), description="Of the engine.")
    label: str = Field("ratchet.tools", min_length=1, description="What a container must carry to be touched.")
    base_images: tuple[str, ...] = Field((), description="Images that a build may begin with.")
    seconds: Seconds = Field(120.0, description="Of one request.")
    log_bytes: Bytes = Field(MIB, description="Of a container's log, or of what a command says.")
    memory_bytes: Bytes = Field(1024 * MIB, description="Of a build.")


class Policy(_Part):
    operations: Mapping[str, Decision] = Field({}, description="By the name of an operation.")
    roles: Mapping[str, Mapping[str, Decision]] = Field(
        {}, description="Of a program with roles: what goes before `[operations]` for calls of a role, by its name."
    )
    task_tools: tuple[str, ...] | None = Field(
        None, description="The operations that a task allows at most (its `constraints`); a runner sets it."
    )
    isolation: Literal["own", "around"] = Field(
        "own",
        description="Whose sandbox git and tests run in: one of their own, or the one that is around this process.",
    )
    limits: Limits = Limits()
    tests: Tests = Tests()
    http: Http = Http()
    database: Database = Database()
    docker: Docker = Docker()

    def decides(self, operation: Operation) -> Decision:
        if self.task_tools is not None and operation.name not in self.task_tools:
            return Decision.DENY
        return self.operations.get(operation.name, operation.effect.decision)

    def for_role(self, role: str) -> Self:
        """Return the policy of a role's calls: that of all where it has none of its own."""
        return self.model_copy(update={"operations": {**self.operations, **self.roles.get(role, {})}})

    @classmethod
    def read(cls, file: Path | None, known: frozenset[str]) -> Self:
        """The defaults where there is no file. Raises PolicyError, also for a name that no operation has."""
        if file is None:
            return cls()
        try:
            policy = cls.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise PolicyError(f"the policy {file} can't be read: {error}") from None
        except ValidationError as error:
            raise PolicyError(f"{file}: {explain('policy', error)}") from None
        named = {*policy.operations, *(name for role in policy.roles.values() for name in role)}
        if unknown := named - known:
            raise PolicyError(
                f"{file}: there is no operation {', '.join(sorted(unknown))}; `ratchet tools list` has them all"
            )
        return policy
