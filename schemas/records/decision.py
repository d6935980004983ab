"""Decision: one line of adapters/decisions.jsonl. What was moved, by whom, when, why, and on which evidence."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue, StringConstraints

from schemas.messages.base import (
    AdapterVersion,
    AgentId,
    BaseModelIdentity,
    Identifier,
    Message,
    Record,
    Sha256,
    Timestamp,
    absent,
)
from schemas.records.cascade import CascadeState
from schemas.records.evidence import Change, ReplayRecord

Who = Annotated[str, StringConstraints(pattern=r"^(orchestrator|trainer|operator:[^\x00-\x1f\x7f]{1,100})$")]
Ed25519 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{43}$")]
"""A public key, in base64url."""
Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Contest = Literal["adapters", "programs"]
"""The two kinds of entries that compete for an agent's tasks, each kind by itself and by the same rules."""


class ProgramRevision(Record):
    """One of an agent's programs; `revision` is the sum over its declaration and what it binds, as runners have it."""

    name: Identifier
    revision: Sha256


class ProgramArms(Record):
    """The program that answers each arm of an experiment of programs."""

    treatment: ProgramRevision
    control: ProgramRevision


class RunningExperiment(Record):
    """A share of the agent's traffic goes to `treatment`, the rest to `control`.

    canary: the treatment is the candidate. watch: it is the primary, and the control is the one before it or v1.0.0; a
    canary may run beside it. probation: what older versions ran in place of a watch after a promotion. Of programs: the
    same, and both arms are answered by the primary version.
    """

    experiment_id: Identifier
    kind: Literal["canary", "probation", "watch"] = "canary"
    treatment: AdapterVersion
    control: AdapterVersion
    share: Share = Field(description="Of the traffic, to the treatment, at first; the plan has the whole ramp.")
    started_at: Timestamp
    first_sequence: int = Field(0, ge=0, description="Assignment sequence number from which on it may assign.")
    parameters: dict[str, JsonValue] = Field(default_factory=dict)
    programs: ProgramArms | None = Field(
        None, exclude_if=absent, description="Of an experiment of programs; absent: adapter versions are compared."
    )
    partners: dict[Identifier, AdapterVersion] | None = Field(
        None,
        exclude_if=absent,
        description="Of an agent that plays a role: versions of the other roles in both arms. Another one ends it.",
    )

    @property
    def contest(self) -> Contest:
        return "adapters" if self.programs is None else "programs"

    @property
    def arms(self) -> tuple[str, str]:
        """The names of what is compared, treatment first: of programs or of versions."""
        if self.programs is not None:
            return self.programs.treatment.name, self.programs.control.name
        return self.treatment, self.control


class OfVersion(Record):
    """A move of one version of the adapter."""

    contest: ClassVar[Contest] = "adapters"
    version: AdapterVersion

    @property
    def name(self) -> str:
        return self.version


class OfProgram(Record):
    """A move of one program."""

    contest: ClassVar[Contest] = "programs"
    program: Identifier

    @property
    def name(self) -> str:
        return self.program


class Register(OfVersion):
    """A published folder becomes known: trained, or a research agent's own."""

    kind: Literal["register"] = "register"
    sha256: Sha256
    folder: str = Field(description="Relative to the folder of the adapters.")
    parent: AdapterVersion
    base: BaseModelIdentity
    research_agent: AgentId | None = Field(None, exclude_if=absent, description="The only agent that it answers for.")


class Validate(OfVersion):
    """It passed the gate: validated."""

    kind: Literal["validate"] = "validate"
    replayed: ReplayRecord | None = Field(
        None, exclude_if=absent, description="What its experiment takes over; absent: no logged prompt was asked."
    )


class RejectVersion(OfVersion):
    """It failed a check before any traffic: rejected."""

    kind: Literal["reject"] = "reject"


class StartExperiment(Record):
    """canary: a validated version becomes the candidate. watch: the primary gets a holdback beside it.

    Of programs: the one that was asked for becomes the candidate, or the one that answers by default gets a holdback.
    """

    kind: Literal["start_experiment"] = "start_experiment"
    experiment: RunningExperiment


class Promote(OfVersion):
    """The version becomes the primary; the one before it is superseded; what ran ends. In one step."""

    kind: Literal["promote"] = "promote"
    experiment_id: Identifier | None = Field(None, description="The canary that proved it; absent by hand.")
    probation: RunningExperiment | None = Field(
        None, exclude_if=absent, description="In older decisions: the experiment that began with it."
    )
    since_base: Change | None = Field(None, description="What it has changed since v1.0.0, as far as was measured.")

    @property
    def change(self) -> Change | None:
        return self.since_base


class Settle(OfVersion):
    """The end of the primary's probation, in older decisions."""

    kind: Literal["settle"] = "settle"


class RollBack(OfVersion):
    """The candidate, or the primary, leaves traffic. A primary's place is taken by `to`, else by the previous one."""

    kind: Literal["roll_back"] = "roll_back"
    to: AdapterVersion | None = None
    cool_down_until: Timestamp | None = None


class Conclude(Record):
    """A running experiment ends without a winner; the primary stays. unharmed: a watch has found no harm."""

    kind: Literal["conclude"] = "conclude"
    experiment_id: Identifier
    verdict: Literal["inconclusive", "aborted", "unharmed"]
    cool_down_until: Timestamp | None = None
    since_base: Change | None = Field(
        None, description="Of the primary, measured by a watch beside v1.0.0: in place of what was known."
    )


class Archive(OfVersion):
    """Out of use for good; the folder is still there."""

    kind: Literal["archive"] = "archive"


class RemoveFolder(OfVersion):
    """An archived version has drained and its folder goes; the record stays."""

    kind: Literal["remove_folder"] = "remove_folder"


class Freeze(Record):
    """No experiment starts and none is promoted until it is lifted; roll-backs still happen."""

    kind: Literal["freeze"] = "freeze"


class Unfreeze(Record):
    kind: Literal["unfreeze"] = "unfreeze"


class Distrust(Record):
    """The scorer has moved: no training is asked for and no experiment starts until it is trusted again."""

    kind: Literal["distrust"] = "distrust"


class Trust(Record):
    """The scorer counts again: it is as it was, or its scores are the new measure."""

    kind: Literal["trust"] = "trust"
    anchor_anew: bool = Field(False, description="Its scores of the anchors, from now on, are what they are held to.")


class SignWith(Record):
    """From the next decision on this key signs, of every agent; it changes nothing else."""

    kind: Literal["sign_with"] = "sign_with"
    key: Ed25519


class MoveCascade(Record):
    """The small model's share moves, or its evidence begins anew."""

    kind: Literal["move_cascade"] = "move_cascade"
    cause: Literal["begin", "raise", "fall", "anew", "set"]
    state: CascadeState


class FreezeCascade(Record):
    """The small model's share is not raised until this is lifted; it still falls."""

    kind: Literal["freeze_cascade"] = "freeze_cascade"


class UnfreezeCascade(Record):
    kind: Literal["unfreeze_cascade"] = "unfreeze_cascade"


class TryProgram(OfProgram):
    """An operator asks for an experiment of this program against the one that answers by default."""

    kind: Literal["try_program"] = "try_program"


class RejectProgram(OfProgram):
    """The program that was asked for can't be tried: rejected, before any traffic."""

    kind: Literal["reject_program"] = "reject_program"


class PromoteProgram(OfProgram):
    """The program answers by default; the one before it is superseded; its canary ends. In one step."""

    kind: Literal["promote_program"] = "promote_program"
    experiment_id: Identifier | None = Field(None, description="The canary that proved it; absent by hand.")
    probation: RunningExperiment | None = Field(
        None, exclude_if=absent, description="In older decisions: the experiment that began with it."
    )
    since_first: Change | None = Field(
        None, description="What it has changed since the agent's first program, as far as was measured."
    )

    @property
    def change(self) -> Change | None:
        return self.since_first


class SettleProgram(OfProgram):
    """The end of the probation of the program that answers by default, in older decisions."""

    kind: Literal["settle_program"] = "settle_program"


class RollBackProgram(OfProgram):
    """It leaves traffic: the one that was asked for, the candidate, or the one that answers by default.

    That one's place is taken by the one before it; where there was none, samples are dealt to all programs again.
    """

    kind: Literal["roll_back_program"] = "roll_back_program"
    cool_down_until: Timestamp | None = None


Move = Annotated[
    Register
    | Validate
    | RejectVersion
    | StartExperiment
    | Promote
    | Settle
    | RollBack
    | Conclude
    | Archive
    | RemoveFolder
    | Freeze
    | Unfreeze
    | SignWith
    | Distrust
    | Trust
    | TryProgram
    | RejectProgram
    | PromoteProgram
    | SettleProgram
    | RollBackProgram
    | MoveCascade
    | FreezeCascade
    | UnfreezeCascade,
    Field(discriminator="kind"),
]


class DecisionDraft(Message):
    """A decision before it has a place in the ledger."""

    TYPE: ClassVar[str] = "decision_draft.v1"

    agent_id: AgentId
    move: Move
    who: Who
    at: Timestamp
    reason: str = Field(min_length=1)
    evidence: dict[str, JsonValue] = Field(default_factory=dict)
    draws: dict[Identifier, str] | None = Field(
        None,
        exclude_if=absent,
        description="The secrets that drew the arms of the experiments that end with it, by experiment.",
    )

    @property
    def by_operator(self) -> bool:
        return self.who.startswith("operator:")


class Decision(DecisionDraft):
    """`sha256` is over the canonical JSON of all other fields, `previous_sha256` among them: a chain from line 1 on.

    `signature` is over the same without `sha256` and itself; decisions of older versions have none.
    """

    TYPE: ClassVar[str] = "decision.v1"

    schema_version: Literal["decision.v1"] = "decision.v1"
    sequence: int = Field(ge=1, description="1, 2, 3 …; the registry's revision after it.")
    previous_sha256: Sha256
    sha256: Sha256
    key: Ed25519 | None = Field(None, description="Whose signature it is: an Ed25519 public key, in base64url.")
    signature: str | None = Field(None, description="In base64url.")
