"""Views of the logs' lines: for each purpose the fields it needs, since only those are decoded.

Fields this version does not know are passed over; what an older line may lack is optional. The whole lines are records:
`schemas/records/interaction.py`, `schemas/messages/work.py` and `feedback.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

Prompt = str | list[dict[str, Any]]


class EpochRow(msgspec.Struct):
    """The leader under which a line of any log was written; 0 for lines from before there were epochs."""

    epoch: int = 0


class RoleVersionRow(msgspec.Struct):
    """The agent that played a role of a program, and with which version."""

    agent_id: str
    adapter_version: str
    adapter_sha256: str | None = None


class ArmRow(msgspec.Struct):
    adapter_version: str | None = None
    experiment_id: str | None = None
    sequence: int = -1
    roles: dict[str, RoleVersionRow] | None = None


class ArmedRow(msgspec.Struct):
    """A line of either log: which number the task had, and in which experiment it was."""

    arm: ArmRow


class DatedRow(msgspec.Struct):
    """A line of any log: when it was written, in one of the two fields."""

    admitted_at: datetime | None = None
    timestamp: datetime | None = None


class SampleRow(msgspec.Struct):
    """A line of either log: whose it is."""

    task_id: str
    sample: int | None = None


class SequenceRow(msgspec.Struct):
    sequence: int


class AssignedRow(msgspec.Struct):
    """The task of an assignment, and its number."""

    task_id: str
    arm: SequenceRow


class EndedRow(AssignedRow):
    """The place of a line in its task's group: without a sample, or as the last one, it ended the task."""

    sample: int | None = None
    group_size: int = 0


class ScorerRow(msgspec.Struct, frozen=True):
    id: str
    revision: str
    rubric_sha256: str | None = None


class ScoreRow(msgspec.Struct):
    """An interaction: what statistics need."""

    task_id: str
    agent_id: str = ""
    adapter_version: str = ""
    timestamp: str = ""
    score: float | None = None
    sample: int | None = None
    group_size: int = 0
    arm: ArmRow = msgspec.field(default_factory=ArmRow)


class ArtifactRow(msgspec.Struct):
    """The artifact that an answer left in its workspace."""

    patch: str = ""
    files: dict[str, str] = {}


class ToolAuditRow(msgspec.Struct):
    """The calls of our tools in a rollout, with the lines of their audit."""

    operations: dict[str, int] = {}
    failed: int = 0
    refused: int = 0
    changed: list[str] = []
    commits: list[str] = []
    count: int = 0
    sha256: str = ""
    lines: list[str] = []


class ForeignRow(msgspec.Struct):
    """The part of a rollout that a model of another provider played."""

    role: str
    model: str
    calls: int = 0
    sampled_tokens: int = 0
    cost_micros: int | None = None


class RoleUsageRow(msgspec.Struct):
    """The calls and tokens that one role of a program took."""

    adapter_version: str
    calls: int = 0
    sampled_tokens: int = 0


class CallsRow(msgspec.Struct):
    """The number of a rollout's calls of the model."""

    calls: int = 0
    roles: dict[str, RoleUsageRow] = {}


class UsageRow(CallsRow):
    """The cost of a rollout."""

    prompt_tokens: int = 0
    sampled_tokens: int = 0
    breaks: dict[str, int] = {}
    seconds: float | None = None


class ScoredAnswerRow(ScoreRow):
    """An interaction: whether two answers of a group are the same, and what the user's was chosen by."""

    response: str | None = None
    select: str | None = None
    pass_score: float | None = None
    artifact: ArtifactRow | None = None
    finish_reason: str | None = None
    sample_status: str | None = None
    sample_says: str | None = None
    usage: CallsRow | None = None
    foreign: list[ForeignRow] | None = None
    reference: str | None = None
    criteria: str | None = None
    ended_at: datetime | None = None
    place: int | None = None
    epoch: int | None = None


class AnswerRow(ScoredAnswerRow):
    """An interaction: what people are shown."""

    input: Prompt = ""
    status: str = "ok"
    reason: str | None = None
    program: str | None = None
    completion_ids: list[int] | None = None
    artifact: ArtifactRow | None = None
    tool_audit: ToolAuditRow | None = None
    latencies: dict[str, float] = {}


class EvaluatedRow(AnswerRow):
    """An interaction: what an evaluation counts."""

    adapter_sha256: str | None = None
    score_status: str | None = None
    scorer: ScorerRow | None = None
    prompt_ids: list[int] | None = None
    usage: UsageRow | None = None


class WorkRow(msgspec.Struct):
    """An assignment: what a list of tasks shows."""

    agent_id: str | None = None
    input: Prompt = ""
    admitted_at: str | None = None
    arm: ArmRow = msgspec.field(default_factory=ArmRow)


class SamplingRow(msgspec.Struct):
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    @property
    def filtered(self) -> bool:
        """True where the logged log-probabilities are not those of the policy's own choice."""
        return self.temperature == 0.0 or self.top_p != 1.0 or self.top_k != 0


class ReferenceRow(msgspec.Struct, frozen=True):
    """A reference to the segments of a conversation in a file of their own (trajectories.py)."""

    sha256: str
    size: int


class BigAnswerRow(msgspec.Struct):
    """The answer of the big model of a cascade."""

    response: str
    teaches: bool = False


class RoutingRow(msgspec.Struct):
    """The routing of a task between a small model and a big one: what the big one answered."""

    big: BigAnswerRow | None = None


class SelectionRow(msgspec.Struct):
    """An interaction: what decides whether it may teach. Raw fields are not decoded, only known to be there."""

    task_id: str
    agent_id: str
    adapter_version: str
    timestamp: datetime
    arm: ArmRow
    sampling: SamplingRow
    group_size: int
    sample: int | None
    score: float | None
    status: str = "ok"
    kept_apart: bool | str = False
    registered_agent: str | None = None
    score_status: str | None = None
    score_reason: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    adapter_sha256: str | None = None
    engine: str | None = None
    finish_reason: str | None = None
    scorer: ScorerRow | None = None
    prompt_ids: msgspec.Raw = msgspec.Raw()
    completion_ids: msgspec.Raw = msgspec.Raw()
    logprobs: msgspec.Raw = msgspec.Raw()
    segments: msgspec.Raw = msgspec.Raw()
    trajectory: ReferenceRow | None = None
    sample_status: str | None = None
    program: str | None = None
    select: str | None = None
    cascade: RoutingRow | None = None
    reference_score: float | None = None
    edited: msgspec.Raw = msgspec.Raw()
    usage: CallsRow | None = None


class GrammarRow(msgspec.Struct):
    """The grammar that an answer was held to; of a segment's, in which spans."""

    text: str
    spans: list[int] = []


class HeldRow(msgspec.Struct):
    """The part of a sampling that says what its answers were held to."""

    grammar: GrammarRow | None = None


class SegmentRow(msgspec.Struct):
    """A segment of a conversation: tokens, which of the completion's were sampled, and with what log-probabilities."""

    prompt_ids: list[int]
    completion_ids: list[int]
    spans: list[tuple[int, int]]
    logprobs: list[float]
    broke: str | None = None
    grammars: list[GrammarRow] = []
    role: str | None = None


class TokensRow(msgspec.Struct):
    """An interaction: what is learned from, in one of three forms."""

    prompt_ids: list[int] | None = None
    completion_ids: list[int] | None = None
    logprobs: list[float] | None = None
    segments: list[SegmentRow] | None = None
    trajectory: ReferenceRow | None = None
    sampling: HeldRow = msgspec.field(default_factory=HeldRow)


class EditedRow(msgspec.Struct):
    """The edit of an answer by a person: the prompt of the model, and the text that it should have said."""

    prompt_ids: list[int]
    text: str


class DemonstrationRow(msgspec.Struct):
    """An interaction: what a demonstration of its task is made from."""

    task_id: str
    input: msgspec.Raw = msgspec.Raw()
    prompt_ids: list[int] | None = None
    reference: str | None = None
    edited: EditedRow | None = None


class ProgramRow(msgspec.Struct):
    """An interaction: which program made it, how that ended and what it took."""

    task_id: str
    agent_id: str
    timestamp: datetime
    group_size: int
    sample: int | None = None
    program: str | None = None
    select: str | None = None
    score: float | None = None
    scorer: ScorerRow | None = None
    sample_status: str | None = None
    usage: UsageRow | None = None
    arm: ArmRow = msgspec.field(default_factory=ArmRow)


class FeedbackRow(msgspec.Struct):
    """A line of feedback: which answer it is about, and what it was worth."""

    task_id: str
    sample: int
    score: float
    agent_id: str
    timestamp: datetime
    correction: str | None = None


def question(asked: Prompt) -> str:
    """The text, or the last of several messages."""
    return asked if isinstance(asked, str) else str(asked[-1].get("content", ""))
