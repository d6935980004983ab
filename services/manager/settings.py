"""The manager's settings, on top of the fleet's."""

from __future__ import annotations

from pydantic import Field, SecretStr, field_validator

from ratchet.service.settings import FleetSettings

DATABASES = ("sqlite:///", "postgresql://")
NO_FILE = ("sqlite:///", "sqlite:///:memory:")


class ManagerSettings(FleetSettings):
    manager_http_port: int = Field(8780, ge=0, le=65535, description="Port of the manager's HTTP server.")
    manager_db: SecretStr = Field(
        SecretStr("sqlite:///.ratchet/manager/jobs.sqlite"),
        description="Where the manager keeps jobs: sqlite:///FILE on a disk of this machine, for one manager, or "
        "postgresql://user:password@host/name, for several.",
    )
    manager_window: int = Field(
        1024,
        ge=1,
        le=10_000,
        description="The most tasks of one agent that the manager has in the broker. A slow agent has 256, a fast one "
        "as many as ended in the last second.",
    )
    manager_ageing_s: float = Field(
        30.0, gt=0, description="Seconds of waiting that are worth as much as one step of a job's priority."
    )
    manager_job_days: float = Field(7.0, gt=0, description="Days until the deadline of a job that names none.")
    manager_keep_days: float = Field(30.0, gt=0, description="Days that a job which has ended is kept for.")

    @field_validator("manager_db")
    @classmethod
    def _check_database(cls, url: SecretStr) -> SecretStr:
        written = url.get_secret_value()
        if not written.startswith(DATABASES) or written in NO_FILE:
            raise ValueError("write sqlite:///FILE or postgresql://user:password@host/name")
        return url
