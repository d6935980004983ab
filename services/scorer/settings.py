"""The scorer's settings, on top of the fleet's. Those of a strategy matter only where the specification names it."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr

from ratchet.service.errors import ScorerError, SettingsError
from ratchet.service.settings import FleetSettings
from workbench.sandbox.settings import SandboxSettings
from workbench.workspaces.settings import WorkspaceSettings


class ScorerSettings(SandboxSettings, WorkspaceSettings, FleetSettings):
    scorer: str = Field(
        "verifier:normalised",
        description="Who scores: verifier:exact|normalised|numeric|regex|graded|json, judge:absolute|relative, "
        "likelihood, tests (programs and workspaces by hidden cases), style, security, efficiency, "
        "tokens:N and time:S (what an answer took; N tokens or S seconds earn a half, of what is right alone), "
        "python:package.module:function, or a weighted sum such as "
        "0.7*verifier:exact + 0.3*judge:absolute. `verifier:exact and judge` asks the judge only about what the "
        "verifier found right, `verifier:exact else judge` only about what it can't tell.",
    )
    scorer_audits: bool = Field(
        False,
        description="Be the auditor: score the queue audits by RATCHET_AUDITOR, with the settings RATCHET_AUDITOR_… "
        "in the place of the scorer's where they are set.",
    )
    auditor_judge_url: str | None = Field(None, description="As RATCHET_SCORER_JUDGE_URL, of the auditor.")
    auditor_judge_model: str | None = Field(None, description="As RATCHET_SCORER_JUDGE_MODEL, of the auditor.")
    auditor_judge_api_key: SecretStr | None = Field(
        None,
        description="As RATCHET_SCORER_JUDGE_API_KEY, of the auditor; the scorer's, unless RATCHET_AUDITOR_JUDGE_URL "
        "is set.",
    )
    auditor_judge_rubric: Path | None = Field(None, description="As RATCHET_SCORER_JUDGE_RUBRIC, of the auditor.")
    auditor_likelihood_model: str | None = Field(
        None, description="As RATCHET_SCORER_LIKELIHOOD_MODEL, of the auditor."
    )
    scorer_http_port: int = Field(8750, ge=0, le=65535, description="Port of the scorer's HTTP server.")
    scorer_prefetch: int = Field(128, ge=1, le=10_000, description="Responses being scored at once.")
    scorer_retries: int = Field(
        2,
        ge=0,
        description="How often a Response is tried again where scoring itself failed, before its score is null.",
    )
    scorer_numeric_relative_tolerance: float = Field(
        1e-6, ge=0, description="verifier:numeric: accepted error as a share of the reference; integers must be equal."
    )
    scorer_numeric_absolute_tolerance: float = Field(
        1e-9, ge=0, description="verifier:numeric: accepted error where the reference is near 0."
    )
    scorer_judge_url: str = Field(
        "http://127.0.0.1:8000/v1", description="judge: base URL of an OpenAI-compatible server, with /v1."
    )
    scorer_judge_model: str = Field("", description="judge: the model's name on that server.")
    scorer_judge_api_key: SecretStr | None = Field(None, description="judge: the server's API key, if it asks for one.")
    scorer_judge_rubric: Path | None = Field(
        None, description="judge: file with the rubric for tasks without criteria; the built-in one if not set."
    )
    scorer_judge_timeout_s: float = Field(60.0, gt=0, description="judge: seconds one call may take.")
    scorer_judge_concurrency: int = Field(8, ge=1, description="judge: calls in flight at once.")
    scorer_judge_retries: int = Field(
        3, ge=0, description="judge: further tries of a call after 429, 5xx or a lost connection."
    )
    scorer_judge_votes: int = Field(
        1,
        ge=1,
        le=25,
        description="judge: verdicts per answer, each over another order of the answers; the median counts.",
    )
    scorer_judge_repeat_share: float = Field(
        0.05,
        ge=0,
        le=1,
        description="judge: share of the tasks that are judged twice, to measure its noise; the first verdict counts.",
    )
    scorer_judge_max_tokens: int = Field(1024, ge=16, description="judge: length of a verdict, in tokens.")
    scorer_judge_max_answer_chars: int = Field(
        20_000, ge=100, description="judge: characters shown of an answer; the judge is told when there were more."
    )
    scorer_judge_fence_key: SecretStr | None = Field(
        None,
        description="judge: secret of the fences around answers, for prompts that can be replayed; a new one at "
        "every start if not set.",
    )
    scorer_likelihood_model: str = Field(
        "models/judge", description="likelihood: the bigger model, a Hugging Face folder or hub name."
    )
    scorer_likelihood_model_revision: str | None = Field(
        None, description="likelihood: commit of a hub model; the newest if not set."
    )
    scorer_likelihood_batch_tokens: int = Field(
        8192, ge=64, description="likelihood: tokens of one forward pass, padding included."
    )
    scorer_likelihood_device: str = Field(
        "auto", description="likelihood: auto, cpu, or a torch device such as cuda:0."
    )
    scorer_likelihood_threads: int = Field(
        1, ge=1, description="likelihood: torch threads on a CPU; 1 is fastest for small or busy machines."
    )
    scorer_python_timeout_s: float = Field(30.0, gt=0, description="python: seconds one call may take.")
    scorer_python_concurrency: int = Field(4, ge=1, description="python: calls running at once.")

    @property
    def own(self) -> Self:
        """Return this process's settings: as they are or, for the auditor, with its own in the place of the
        scorer's."""
        if not self.scorer_audits:
            return self
        if not self.auditor:
            raise SettingsError("RATCHET_SCORER_AUDITS needs an auditor to be: set RATCHET_AUDITOR, as RATCHET_SCORER")
        of_scorers_judge = self.model_copy(update={"scorer_judge_api_key": None}) if self.auditor_judge_url else self
        given = {
            "scorer": self.auditor,
            "scorer_judge_url": self.auditor_judge_url,
            "scorer_judge_api_key": self.auditor_judge_api_key,
            "scorer_judge_model": self.auditor_judge_model,
            "scorer_judge_rubric": self.auditor_judge_rubric,
            "scorer_likelihood_model": self.auditor_likelihood_model,
        }
        return of_scorers_judge.model_copy(update={name: value for name, value in given.items() if value is not None})

    def unusable_parts(self) -> list[str]:
        try:
            from services.scorer.strategies.installed import check_parts
        except ModuleNotFoundError:  # an image of another service has nothing of the scorer but this file
            return []
        ours = {} if self.external_scorer else {"RATCHET_SCORER": self.model_copy(update={"scorer_audits": False})}
        auditors = {"RATCHET_AUDITOR": self.model_copy(update={"scorer_audits": True})} if self.auditor else {}
        faults = []
        for name, one in (ours | auditors).items():
            try:
                check_parts(one.own)
            except ScorerError as error:
                faults.append(f"{name}: {error}")
        return faults
