"""The plan, the evidence and the decision of an experiment. Numbers and words only."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from schemas.messages.base import AdapterVersion, Identifier, Record, Sentences, Sha256, absent

EValue = Annotated[float, Field(ge=0.0, le=1e300)]
"""An e-value: the factor by which the evidence speaks against its null hypothesis; 1e300 stands for all above it."""

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=0)]
Margin = Annotated[float, Field(ge=0.0, le=0.5)]
Loss = Annotated[float, Field(gt=-0.5, lt=0.5)]
Factor = Annotated[float, Field(gt=0.0)]


class Verdict(Sentences):
    """A decision on the candidate. All but CONTINUE are final."""

    CONTINUE = "continue", "Neither proved nor refuted yet: the experiment goes on."
    PROMOTE = "promote", "The candidate is proved better: it becomes the primary."
    ROLL_BACK = "roll_back", "The candidate is proved harmful: the other version takes all traffic."
    ABORT = "abort", "The measurement itself is broken, so it proves nothing: the experiment ends without a winner."
    INCONCLUSIVE = "inconclusive", "The budget is spent without proof: the primary stays."
    STABLE = "stable", "It was watched to the end without proof of harm: the primary stays."

    @property
    def final(self) -> bool:
        return self is not Verdict.CONTINUE


class RampStep(Record):
    """One share of the ramp, and what must be seen at it."""

    share: Share = Field(description="Probability with which a new unit is given to the candidate.")
    candidate_units: Count = Field(description="Units the candidate must have finished at this share to go on.")
    open_candidates: int = Field(
        ge=1, description="Candidate units unfinished at a time; above it new units stay out of the experiment."
    )


CANARY_RAMP = (
    RampStep(share=0.05, candidate_units=5, open_candidates=20),
    RampStep(share=0.25, candidate_units=10, open_candidates=50),
    RampStep(share=0.5, candidate_units=10, open_candidates=1000),
)


class Change(Record):
    """The average difference of one version from another: differences of shares and scores, factors of sizes."""

    score: float = 0.0
    success: float = 0.0
    refused: float = Field(0.0, description="Of the share of answers that are refusals.")
    length: Factor = 1.0
    latency: Factor = 1.0

    def and_then(self, later: Change) -> Change:
        """Both, one after the other."""
        return Change(
            score=self.score + later.score,
            success=self.success + later.success,
            refused=self.refused + later.refused,
            length=self.length * later.length,
            latency=self.latency * later.latency,
        )


class Limits(Record):
    """The most that a candidate may be worse than its primary, proved before it is promoted.

    `since_base` is what the primary has already changed since v1.0.0: the limits hold for both together.
    """

    success: Loss = Field(description="Loss of the success rate.")
    refused: Loss = Field(description="Growth of the share of refusals.")
    length: Factor = Field(description="Times the primary's length; below 1 it must be proved shorter.")
    latency: Factor = Field(description="Times the primary's latency.")
    since_base: Change = Change()


class AuditRule(Record):
    """The evidence that the auditor, a second scorer that never trains, must see in an experiment."""

    share: float = Field(
        gt=0, le=1, description="Probability with which a unit is audited, whatever its arm and score."
    )
    margin: float = Field(
        0.02, gt=0, le=0.5, description="Loss of the auditor's score that must be ruled out before a promotion."
    )
    tolerance: Margin = Field(0.01, description="Loss of the auditor's score that is not yet harm.")


class ServedRule(Record):
    """The evidence about answers that users get, by a judge whose first verdict did not choose them.

    The auditor gives it, of the units that it sees; where nobody audits, the scorer that is asked once more.
    """

    share: float = Field(gt=0, le=1, description="Probability with which a unit gets it, whatever its arm and score.")
    margin: float = Field(0.01, gt=0, le=0.5, description="Loss in it that must be ruled out before a promotion.")
    tolerance: Margin = Field(0.01, description="Loss in it that is not yet harm.")


class ReplayedEvidence(Record):
    """The proof of the shadow replay about a candidate before it met users: e-values, null where it did not look.

    The experiment takes (1 + e)/2 times its own e-value, which is an e-value for "worse than the limit on the logged
    prompts and live": a replay that says nothing costs half of the evidence at most.
    """

    prompts: Count = Field(description="Prompts at which the candidate was compared.")
    score: EValue | None = Field(
        None, description="For: better in score. It shortens the ramp; the gain itself is proved live alone."
    )
    success: EValue | None = None
    bounds: EValue | None = None
    served: EValue | None = None
    length: EValue | None = None
    refused: EValue | None = None
    usual_latency_s: float | None = Field(
        None,
        gt=0,
        description="Mean seconds of the primary's logged answers to the prompts. The live test begins to clip "
        "latencies by it, so that it need not wait until it knows what is usual. Not an e-value.",
    )
    types: dict[str, Count] = Field(default_factory=dict, max_length=256, description="Prompts by task type.")


class ReplayRecord(Record):
    """A shadow replay as the gate ends it, kept until the experiment that takes it over."""

    against: AdapterVersion = Field(description="The primary, whose logged scores it was held against.")
    evidence: ReplayedEvidence
    since_base: Change | None = Field(
        None,
        description="What that primary has changed since v1.0.0, measured on the same prompts, without latency. Null "
        "from too few prompts, and where it is v1.0.0.",
    )


def _threshold(plan: dict[str, Any]) -> float:
    """Return 1 / alpha: by Ville's inequality an e-process ever reaches it with probability alpha at most."""
    return float(1.0 / plan["alpha"])


class ExperimentPlan(Record):
    """All an experiment is decided by, fixed before its first unit. Scores, success, margins are on a scale of 0 to 1.

    In a watch, and in a probation of older plans, the candidate is the primary, and the other arm is held back with
    1 − share.
    """

    experiment_id: Identifier
    kind: Literal["canary", "probation", "watch"] = "canary"
    rule: Literal[1, 2, 3] = Field(
        1,
        description="3: one bound for all task types, a veto for each type within the same rate of error, and limits "
        "on the means of sizes. 2, in older plans: the vetoes have a rate of error of their own. 1: a bound for each "
        "type, and limits on usual sizes.",
    )
    goal: Literal["better", "cheaper"] = Field(
        "better",
        description="better: a gain in score must be proved. cheaper: fewer tokens must be proved, at a loss of score "
        "of less than −`min_gain`.",
    )
    draw_sha256: Sha256 | None = Field(
        None,
        description="SHA-256 of the secret that draws the arms. The decision that ends the experiment tells the "
        "secret, so that everybody can draw again. Null in older plans, whose draws have no secret.",
    )
    replayed: ReplayedEvidence | None = Field(None, description="Null: there was no shadow replay.")
    ramp: tuple[RampStep, ...] = Field(CANARY_RAMP, min_length=1)
    alpha: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="Rate of false promotions, and of false roll-backs, of an equal candidate; 0.05 in older plans.",
    )
    hold_ramp_at: float = Field(1.2, gt=0, description="The ramp waits while the e-value for harm is this or more.")
    by_intention: bool = Field(
        False,
        description="Every sample of an admitted task counts, scored or not; where false, as in older plans, the "
        "unscored are left out.",
    )
    metric: Literal["single", "served"] = Field(
        "single",
        description="What its scores are of: a single answer, which the mean of the group is, or the answer the user "
        "gets, the best of it; single in older plans.",
    )
    min_gain: Loss = Field(
        0.0, description="The candidate must be better in score by more than this; below 0: may be worse by less."
    )
    success_margin: float = Field(0.05, gt=0, le=0.5, description="Loss of success that must be ruled out to promote.")
    limits: Limits | None = Field(
        None, description="Must be proved kept before a promotion; in older plans only the success margin was."
    )
    audit: AuditRule | None = Field(
        None, description="A promotion needs the auditor too, and its harm counts; null: nobody audits."
    )
    served: ServedRule | None = Field(
        None, description="A promotion needs a second verdict on what users get; null, as in older plans: it does not."
    )
    nth: int = Field(
        1,
        ge=1,
        description="Number of the candidate among all of the agent: alpha is its part of what all of them may use.",
    )
    type_tolerance: Margin = Field(0.05, description="Loss of score within one task type that is not yet harm.")
    min_type_units: Count = Field(
        12,
        description="Units of each arm, replayed prompts included, at which a task type can be judged; types of at "
        "least 5 % of the units must come to it before a promotion.",
    )
    score_tolerance: Margin = Field(0.01, description="Loss of score that is not yet harm.")
    success_tolerance: Margin = Field(0.01, description="Loss of success that is not yet harm.")
    length_tolerance: Margin = Field(
        0.1, description="Growth of length that is not yet harm; 0.1 is about 50 % longer."
    )
    latency_tolerance: Margin = Field(
        0.1, description="Growth of latency that is not yet harm; 0.1 is about 50 % more."
    )
    refused_tolerance: Margin = Field(0.01, description="Growth of the share of refusals that is not yet harm.")
    promote_at: float = Field(default_factory=_threshold, gt=1, description="E-value that promotes: 1 / alpha.")
    roll_back_at: float = Field(default_factory=_threshold, gt=1, description="E-value that rolls back: 1 / alpha.")
    abort_at: float = Field(1000.0, gt=1, description="E-value of the sample-ratio check that aborts.")
    min_units_per_arm: Count = Field(20, description="Finished units of each arm before a promotion.")
    min_age_s: float = Field(0.0, ge=0, description="Seconds from first to latest finished unit before a promotion.")
    max_units: int = Field(5000, ge=1, description="Budget: units of both arms; also bounds the memory.")
    session_tasks: int = Field(8, ge=1, description="A session's unit is the mean of at most its first so many tasks …")
    session_window_s: float = Field(300.0, gt=0, description="… admitted within so many seconds of its first.")
    scorer: str | None = Field(None, description="Scorer identity to expect; the first one seen if absent.")

    @property
    def threshold(self) -> float:
        """The e-value that decides: of a probation and a watch, the one that rolls back."""
        return self.promote_at if self.kind == "canary" else self.roll_back_at

    @model_validator(mode="after")
    def _ramp_goes_up(self) -> Self:
        shares = [step.share for step in self.ramp]
        if any(later <= earlier for earlier, later in pairwise(shares)):
            raise ValueError(f"the ramp's shares must go up, not {shares}")
        return self


class Band(Record):
    """Score of candidate minus primary: an estimate, and an interval.

    Each end holds at all times with probability 1 − alpha of the plan.
    """

    effect: float
    low: float
    high: float


class ArmSummary(Record):
    """Finished units of one arm and their plain means, null where nothing was measured: for people to read."""

    units: Count
    score: float | None
    success: float | None
    length: float | None
    latency_s: float | None
    refused: float | None = Field(None, description="Share of its answers that are refusals.")
    audit: float | None = Field(None, description="Score by the auditor, of the units it saw.")
    calls: float | None = Field(None, exclude_if=absent, description="Of the model, by rollouts of several calls.")
    turns: float | None = Field(None, exclude_if=absent, description="Of these in the longest conversation.")


class Evidence(Record):
    """The numbers a verdict stands on. `gain_success` speaks for "not worse than the margin allows"."""

    units: Count
    step: Count
    share: Share
    age_s: float = Field(ge=0.0)
    candidate: ArmSummary
    primary: ArmSummary
    gain_score: EValue
    gain_success: EValue
    gain_bounds: EValue | None = Field(
        None,
        description="For: no loss of score beyond the success margin, were the candidate's missing scores 0 and the "
        "primary's 1. Null where the plan leaves the unscored out.",
    )
    kept_length: EValue | None = Field(None, description="For: within the plan's limit. Null where it has none.")
    kept_latency: EValue | None = None
    kept_refused: EValue | None = None
    change: Change | None = Field(None, description="Of candidate to primary, estimated; null where there is no limit.")
    harm_type: EValue | None = Field(
        None,
        description="The largest e-value for harm within one task type, times the type's part of the error rate. It "
        "is compared with the threshold by itself. Null in older plans.",
    )
    worst_type: str | None = Field(None, description="The task type of `harm_type`.")
    rare_types: tuple[str, ...] = Field((), description="Task types seen too seldom to be judged; at most 8.")
    awaited_type: str | None = Field(None, description="A common task type that a promotion still waits for.")
    harm: EValue = Field(description="Weighted mean of those below; it alone is compared with the threshold.")
    harm_score: EValue
    harm_success: EValue
    harm_length: EValue
    harm_latency: EValue
    harm_refused: EValue | None = Field(None, description="Null in older plans.")
    audited: Count | None = Field(None, description="Units that were to be audited. Null where nobody audits.")
    audit_effect: float | None = Field(None, description="Candidate minus primary by the auditor, estimated.")
    gain_audit: EValue | None = Field(
        None,
        description="For: no loss of the auditor's score beyond the margin, where what the auditor did not score "
        "counts 0 for the candidate and 1 for the primary.",
    )
    harm_audit: EValue | None = None
    served_units: Count | None = Field(
        None, description="Units whose users' answers were to be judged once more. Null where the plan asks for none."
    )
    served_effect: float | None = Field(None, description="Candidate minus primary in these verdicts, estimated.")
    gain_served: EValue | None = Field(
        None,
        description="For: no loss beyond the margin in what users are served, by verdicts that did not choose it; one "
        "that never came counts 0 for the candidate and 1 for the primary.",
    )
    harm_served: EValue | None = None
    auditor: str | None = None
    foreign_auditor: str | None = Field(None, description="An auditor other than `auditor` that scored a unit.")
    sample_ratio: EValue
    scorer: str | None
    foreign_scorer: str | None = Field(description="A scorer other than `scorer` that scored a unit.")

    @property
    def kept(self) -> float | None:
        """The least e-value for a limit on length, latency or refusals that is kept; None where there is no limit."""
        kept = (self.kept_length, self.kept_latency, self.kept_refused)
        return min((value for value in kept if value is not None), default=None)


class ExperimentDecision(Record):
    """The verdict, why, and after which unit: `sequence` is the assignment number of the unit's first task."""

    experiment_id: Identifier
    verdict: Verdict
    reason: str
    sequence: int | None
    evidence: Evidence
    band: Band


class HistoryPoint(Record):
    """The state of the experiment after `units` finished units."""

    units: Count
    share: Share
    band: Band
    gain: EValue
    harm: EValue
