"""Settings every service shares, read once from the environment (`RATCHET_…`) into one frozen object.

A service adds its own fields in `services/<name>/settings.py`, under its own prefix.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pika import URLParameters
from pydantic import BeforeValidator, Field, SecretStr, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ratchet.service.errors import SettingsError
from schemas.messages.base import AgentId, TenantName
from schemas.records.demonstration import DemonstrationSource

SCHEMES = ("amqp", "amqps")
NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


def amqp_parameters(url: str) -> URLParameters:
    """Raises SettingsError for what is no AMQP URL, in a sentence that repeats nothing of it: it holds a password."""
    try:
        if urlsplit(url).scheme in SCHEMES:
            return URLParameters(url)
    except (ValueError, TypeError, AttributeError):
        pass
    raise SettingsError(
        "RATCHET_AMQP_URL is no AMQP URL: write amqp://user:password@host:5672/vhost, and in the user and the password "
        "%2F for /, %3F for ?, %23 for #, %3A for :, %40 for @, %25 for %"
    )


def broker_user(url: str) -> str:
    """Return the user that an AMQP URL names. Raises SettingsError for what is no AMQP URL."""
    return str(amqp_parameters(url).credentials.username)


def names(value: Any) -> Any:
    """Split a list setting at its commas."""
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


def pairs(text: str) -> dict[str, str]:
    """Split a setting of the form `name=value, name=value`."""
    split = (pair.partition("=") for pair in text.split(",") if pair.strip())
    return {name.strip(): value.strip() for name, _, value in split}


def none_if_empty(value: Any) -> Any:
    """Turn an empty path into None: `.` is no path that anybody meant."""
    return None if value == "" else value


class FleetSettings(BaseSettings):
    """Each field is an environment variable: `RATCHET_` and the field's name in capitals."""

    model_config = SettingsConfigDict(frozen=True, env_prefix="RATCHET_", extra="ignore")

    amqp_url: SecretStr = Field(
        SecretStr("amqp://guest:guest@127.0.0.1:5672/"), description="The broker: an AMQP URL with user and password."
    )
    namespace: str = Field(
        "", max_length=60, description="Prefix of every queue and exchange, for several fleets on one broker."
    )
    declare_topology: bool = Field(
        True, description="Declare the queues at each connection; false: wait until `ratchet broker setup` has done it."
    )
    broker_disk_gb: float = Field(
        20.0,
        gt=0,
        description="The broker's disk, in GB: its queues together may take 60 % of it; a queue that is there keeps "
        "its bound.",
    )
    agents: Annotated[tuple[AgentId, ...], NoDecode, BeforeValidator(names)] = Field(
        ("small",), min_length=1, description="The fleet's agents, by comma; the first answers tasks that name none."
    )
    agent_tenants: str = Field(
        "",
        description="Agents that are for one tenant alone, as agent=tenant, by comma. Other agents are for all "
        "tenants, and learn from the tenant `default`.",
    )
    tenants: Annotated[tuple[TenantName, ...], NoDecode, BeforeValidator(names)] = Field(
        (), description="Tenants that publish over the broker, by comma: each has a user of it, client-<tenant>."
    )
    require_tenant: bool = Field(
        False, description="Refuse tasks and feedback from the broker that are of no user of RATCHET_TENANTS."
    )
    shared_learning: Annotated[tuple[AgentId, ...], NoDecode, BeforeValidator(names)] = Field(
        (), description="Agents that learn from the tasks of every tenant that may use them, by comma."
    )
    programs: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        None,
        description="File (TOML) of the programs that answer agents' tasks; agents that it names take no tasks "
        "themselves. The same for agents and runners.",
    )
    program_environments: Path = Field(
        Path(".ratchet/programs"),
        description="Folder of what programs require, as `ratchet programs install` puts it there.",
    )
    external_scorer: bool = Field(
        False, description="A scorer that is not ours answers with draft-shaped Rewards: keep each Response for them."
    )
    auditor: str = Field(
        "",
        description="A second scorer, written as RATCHET_SCORER, that never teaches and can stop what only the "
        "scorer likes. The same for every service.",
    )
    demonstrations: Annotated[tuple[DemonstrationSource, ...], NoDecode, BeforeValidator(names)] = Field(
        ("reference", "correction", "big_model", "approval"),
        description="Which texts that are known to be good for a prompt teach, by comma: reference (a task's reference "
        "that earns full marks from the scorer as an answer), correction (given with feedback), big_model (its "
        "answer, in a cascade), approval (a person's edit of a program's result); none if empty. The same for "
        "orchestrator, scorer and trainer.",
    )
    replay_share: float = Field(
        0.1,
        ge=0,
        le=0.5,
        description="Share of the prompts that no training sees, for the shadow replay; 0: trainings may see all. "
        "The same for orchestrator and trainer.",
    )
    judge_selects: bool = Field(
        False,
        description="Tasks may have the scorer's judge choose among the best answers (`select: judge`). The same for "
        "orchestrator and scorer.",
    )
    prices: Annotated[Path | None, BeforeValidator(none_if_empty)] = Field(
        None,
        description="File (TOML) of what agents' tokens cost, for budgets of jobs and for cascades; without it nothing "
        "costs anything.",
    )
    manager_url: Annotated[str | None, BeforeValidator(none_if_empty)] = Field(
        None,
        pattern=r"^https?://[^/]+$",
        description="Where the manager is: http://host:8780, for agents that are registered with it. Runners take "
        "their programs from there; without it there are none. The same for every service.",
    )
    longest_deadline_s: float = Field(
        7 * 86_400.0, gt=0, description="Seconds ahead that a task may name its own deadline; a later one is refused."
    )
    logs_dir: Path = Field(Path("logs"), description="Folder of the two logs and of the index over them.")
    index_dir: Path | None = Field(
        None,
        description="Folder of the indexes over the logs, on a disk of this machine; the folder of the logs if not "
        "set.",
    )
    log_keep_gb: float = Field(
        20.0,
        ge=0,
        description="Room for both logs on disk, in GB: their oldest sealed segments are removed once nothing needs "
        "them; 0: no bound.",
    )
    log_keep_days: float = Field(
        0.0, ge=0, description="Days after which lines are removed from the logs, a sealed segment at a time; 0: never."
    )
    adapters_dir: Path = Field(Path("adapters"), description="Folder of the adapters.")
    models_dir: Path = Field(
        Path("models"),
        description="Folder that `ratchet models fetch` puts models into, and that settings find them in by name.",
    )
    decision_keys: Path | None = Field(
        None,
        description="Folder of the key that decisions are signed with; decision-keys/ beside the adapters folder if "
        "not set. Only who decides needs it.",
    )
    adapter_max_rank: int = Field(
        64, ge=1, description="Largest LoRA rank that is taken: at most the max-lora-rank of a vllm server."
    )
    own_share: float = Field(
        0.1,
        gt=0,
        le=0.9,
        description="Share of the samples that the fleet's own tasks (gate, `ratchet eval`) get while users' tasks "
        "fill an agent or a runner.",
    )
    http_host: str = Field(
        "127.0.0.1", description="Address the HTTP server listens on; beyond loopback it needs the public keys."
    )
    api_public_keys: Path | None = Field(
        None,
        description="The public keys (JWKS) that API tokens are checked with: a file, or the folder of `ratchet "
        "token keys`.",
    )
    api_issuer: str = Field("ratchet", min_length=1, description="Who must have issued an API token (`iss`).")
    api_audience: str = Field("ratchet", min_length=1, description="Whom an API token must be for (`aud`).")
    api_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(names)] = Field(
        (), description="Host names, by comma, that pages may call the API by, besides loopback and their own."
    )
    api_requests_at_once: int = Field(
        1024,
        ge=1,
        description="Requests answered at a time, three quarters of them tasks, chats and feedback; more get a 429.",
    )
    api_requests_per_s: float = Field(
        1000.0, ge=0, description="Requests a second of one caller, twice as many in a burst; 0: no limit."
    )
    api_audit_dir: Path | None = Field(
        None, description="Folder of the audit of changes and refusals; audit/ in the logs folder if not set."
    )
    publish_timeout_s: float = Field(30.0, gt=0, description="Seconds a publish may wait for its confirm.")
    drain_grace_s: float = Field(30.0, ge=0, description="Seconds a service may finish its work in after SIGTERM.")
    restart_stalled_s: float = Field(
        300.0,
        ge=0,
        description="Seconds without progress, beyond being not ready, after which a service ends itself to be "
        "started again; 0: never.",
    )
    max_message_bytes: int = Field(
        1_048_576,
        ge=1024,
        le=16_000_000,
        description="Largest message a user may send, in bytes; larger go to dead-letters.",
    )
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR.")

    @field_validator("agent_tenants")
    @classmethod
    def _name_tenants(cls, agent_tenants: str, info: ValidationInfo) -> str:
        agents = info.data.get("agents", ())
        for agent, tenant in pairs(agent_tenants).items():
            if agent not in agents:
                raise ValueError(f"{agent}={tenant} names no agent: there are {', '.join(agents)}")
            TypeAdapter(TenantName).validate_python(tenant)
        return agent_tenants

    @field_validator("amqp_url")
    @classmethod
    def _is_an_amqp_url(cls, url: SecretStr) -> SecretStr:
        amqp_parameters(url.get_secret_value())
        return url

    @property
    def has_runner(self) -> bool:
        """Tell whether programs answer tasks: those of a file, or those that are registered with a manager."""
        return self.programs is not None or self.manager_url is not None

    @property
    def decision_keys_dir(self) -> Path:
        return self.decision_keys or self.adapters_dir.parent / "decision-keys"

    @property
    def audit_dir(self) -> Path:
        return self.api_audit_dir or self.logs_dir / "audit"

    @property
    def index_folder(self) -> Path:
        return self.index_dir or self.logs_dir

    @classmethod
    def read(cls, **given: Any) -> Self:
        """Read what is `given`, then the environment, then files of secrets. Raises SettingsError naming what is at
        fault.

        A file of RATCHET_SECRETS_DIR (or /run/secrets) with a variable's name in small letters, such as
        `ratchet_amqp_url`, is that variable's value.
        """
        try:
            return cls._from_values(given)
        except ValidationError as error:
            raise SettingsError(f"settings can't be used: {'; '.join(cls._sentences(error))}") from None

    @classmethod
    def faults(cls, given: Mapping[str, str] = NO_VARIABLES) -> list[str]:
        """A sentence for each setting whose value can't be used, its name first. Raises SettingsError for a secret.

        `given`: variables that go before those of the environment.
        """
        prefix = str(cls.model_config.get("env_prefix", ""))
        fields = {name.removeprefix(prefix).lower(): value for name, value in given.items()}
        try:
            return cls._from_values(
                {name: fields[name] for name in fields.keys() & cls.model_fields.keys()}
            ).unusable_parts()
        except ValidationError as error:
            return cls._sentences(error)

    def unusable_parts(self) -> list[str]:
        """A sentence for each setting that names a part which is not installed, or lacks what it can't do without.

        Only where its service is installed.
        """
        return []

    @classmethod
    def _from_values(cls, given: dict[str, Any]) -> Self:
        secrets = Path(os.environ.get("RATCHET_SECRETS_DIR", "/run/secrets"))
        try:
            return cls(_secrets_dir=secrets if secrets.is_dir() else None, **given)
        except OSError as error:
            raise SettingsError(f"a secret can't be read: {error}") from None

    @classmethod
    def _sentences(cls, error: ValidationError) -> list[str]:
        prefix = str(cls.model_config.get("env_prefix", ""))
        return [
            f"{prefix}{'_'.join(map(str, fault['loc'])).upper()}: {fault['msg']}"
            for fault in error.errors(include_input=False, include_url=False)
        ]
