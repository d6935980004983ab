"""Chooses the adapter and the program that answer each task of one agent: the primary ones, or the arm that is drawn.

Follows the registry; decides nothing. Knows no clock, no bus and no files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from ratchet.experiments.assignment import Assignment, draw
from ratchet.experiments.experiment import Experiment
from ratchet.experiments.logged import audit_of, enrolment_of, outcome_of, unit_of
from ratchet.experiments.records import own_number
from ratchet.logs.best_answer import is_censored
from ratchet.logs.names import EVALUATION, VALIDATION
from ratchet.service.errors import Reject
from schemas.messages.task import Task
from schemas.messages.work import BASE_VERSION, Arm, RoleVersion, Work
from schemas.records.audit import AuditedTask
from schemas.records.decision import RunningExperiment
from schemas.records.interaction import Interaction
from schemas.records.registry import AgentAdapters, EntryState

LONGEST_ID = 200
Trial = tuple[RunningExperiment, Experiment]
ReadRegistry = Callable[[str], Awaitable[None]]
"""Has an agent's arms follow the registry as it is now: a version may have been promoted a moment ago."""
WATCH_LAYER = 0.2
"""Share of the units that are the watch's own while another experiment runs."""


class Arms:
    """One agent's. Give it the registry to follow, every Work logged, and every task closed."""

    def __init__(self, agent_id: str, fleet: int | None = None) -> None:
        """`fleet`: its number where several pool their evidence, 0 if it decides; None where it is alone."""
        self.agent_id = agent_id
        self.fleet = fleet
        self.adapters = AgentAdapters()
        self.experiment: Experiment | None = None
        self.watch: Experiment | None = None
        self.trials: tuple[Trial, ...] = ()
        """The experiment and the watch, as far as there are any."""
        self.team: Mapping[str, Arms] = {}
        """The arms of the agents that play the roles of its programs, itself first; empty where they have none."""
        self.first: Arms = self
        """The arms of the agent whose tasks are the units of this one's experiments: of its team's first role."""
        self._open: Counter[str] = Counter()
        self._newest_at: float | None = None
        """When its newest task was admitted, in seconds since the epoch: the time by which experiments pace."""

    def lead(self, team: Mapping[str, Arms]) -> None:
        """Let these play the roles of its programs from now on."""
        self.team = team
        for one in team.values():
            one.first = self

    @property
    def mates(self) -> list[Arms]:
        """The arms of those that play the other roles of its team."""
        return [one for one in self.first.team.values() if one is not self]

    @property
    def partner_versions(self) -> dict[str, str] | None:
        """The primaries of the other roles of its team; None where it plays none."""
        others = {role: one.adapters.primary for role, one in self.first.team.items() if one is not self}
        return others or None

    @property
    def judged_here(self) -> tuple[Trial, ...]:
        """The experiment and the watch whose units are this agent's tasks, as far as there are any: of a team's first
        role those of all roles, of its partners none."""
        if self.first is not self:
            return ()
        found = [one for arms in (self, *self.mates) for one in arms.trials]
        return tuple(sorted(found, key=lambda one: one[0].kind == "watch"))

    @property
    def follows(self) -> bool:
        """True if another fleet decides about the adapters."""
        return bool(self.fleet)

    def awaited_audits(self, experiment: Experiment) -> Iterator[int]:
        """The numbers of this fleet's tasks that count in the experiment only once they are audited."""
        for number in experiment.awaited_audits:
            own = number if self.fleet is None else own_number(number, self.fleet)
            if own is not None:
                yield own

    def follow(self, adapters: AgentAdapters, experiment: Experiment | None, watch: Experiment | None = None) -> None:
        """Assign by this from now on. `experiment` and `watch` go with the registry's running ones."""
        self.adapters, self.experiment, self.watch = adapters, experiment, watch
        both = ((adapters.experiment, experiment), (adapters.watch, watch))
        self.trials = tuple((running, trial) for running, trial in both if running and trial)

    @property
    def offered(self) -> frozenset[str]:
        """Versions a task may ask for: those in traffic, which agents have loaded, and the base model."""
        return self.adapters.in_traffic | {BASE_VERSION}

    def offers(self, task: Task) -> bool:
        if task.adapter_version is None or task.adapter_version in self.offered:
            return True
        entry = self.adapters.versions.get(task.adapter_version)
        if entry is None or entry.state is not EntryState.RESEARCH:
            return False
        return task.registered_agent == entry.research_agent

    def arms_to_refresh(self, task: Task) -> list[Arms]:
        """Return those of which the task asks for a version that they don't offer, as far as is known here."""
        asked = [] if self.offers(task) else [self]
        for role, version in (task.role_versions or {}).items():
            if (player := self.team.get(role)) is not None and version not in player.offered:
                asked.append(player)
        return asked

    def check(self, task: Task) -> None:
        """Raises Reject for a version that is not offered, and for one of a role that is not there."""
        for role, version in (task.role_versions or {}).items():
            if task.evaluation is None:
                raise Reject(
                    "role_versions goes with `evaluation`: the versions of a team are chosen for no user's task"
                )
            if (player := self.team.get(role)) is None:
                raise Reject(f"the programs of agent {self.agent_id!r} have no role {role!r}")
            if version not in player.offered:
                raise Reject(f"role {role!r} is not played by {version} now: name one of {', '.join(player.offered)}")
        if not self.offers(task):
            raise Reject(
                f"agent {self.agent_id!r} does not answer with {task.adapter_version} now, but with "
                f"{', '.join(sorted(self.offered))}: name one of these, or none"
            )

    def arm_for(self, task: Task, sequence: int) -> Arm:
        """The arm of a new task. Call it in the order of the sequence numbers."""
        drawn = self._draw_arm(task, sequence)
        return drawn.model_copy(update={"program": None}) if drawn.program and names_its_own(task) else drawn

    def _draw_arm(self, task: Task, sequence: int) -> Arm:
        if task.evaluation is not None:
            of = f"{VALIDATION}{self.agent_id}{EVALUATION}{task.evaluation}"[:LONGEST_ID]
            roles = {role: self.team[role].role_version(one) for role, one in (task.role_versions or {}).items()}
            own = next((one.adapter_version for one in roles.values() if one.agent_id == self.agent_id), None)
            arm = self.arm(own or task.adapter_version or self.adapters.primary, sequence, experiment_id=of)
            return arm.model_copy(update={"roles": (arm.roles or {}) | roles}) if roles else arm
        if task.adapter_version is not None:
            return self.arm(task.adapter_version, sequence)
        if task.kept_apart or task.profile or not self.judged_here:
            return self.arm(self.adapters.primary, sequence)
        unit_id, in_session = unit_of(task)
        trials = self._trials_of(task)
        if is_censored(task.select):
            return self._arm_of_session(trials, unit_id if in_session else None, sequence)
        for running, experiment, share in self._open_to(trials, unit_id, in_session):
            if sequence < running.first_sequence and not self.follows:
                continue
            assignment = experiment.arm_for(unit_id, in_session=in_session, share=share, at=self._newest_at)
            if assignment is not None:
                return self._arm_in(running, assignment, sequence)
        return self.arm(self.adapters.primary, sequence)

    def _trials_of(self, task: Task) -> tuple[Trial, ...]:
        """A task whose programs its asker chose is in no experiment of programs. An experiment whose partners have
        changed takes no more tasks: its promoter ends it."""
        found = tuple(one for one in self.judged_here if one[0].partners == self._owner(one[0]).partner_versions)
        if names_its_own(task):
            return tuple(one for one in found if one[0].contest == "adapters")
        return found

    def _owner(self, running: RunningExperiment) -> Arms:
        """Return the arms of the role that the experiment is about."""
        return next((one for one in self.mates if running in one.adapters.running), self)

    def _arm_in(self, running: RunningExperiment, assignment: Assignment, sequence: int) -> Arm:
        version, program = running.control, running.programs and running.programs.control
        if assignment.is_candidate:
            version, program = running.treatment, running.programs and running.programs.treatment
        drawn = self._owner(running).arm_as_played(
            version,
            sequence,
            experiment_id=running.experiment_id,
            is_candidate=assignment.is_candidate,
            propensity=assignment.propensity,
        )
        named = {"program": program.name, "program_revision": program.revision} if program else {}
        return drawn.model_copy(update=named) if named else drawn

    def _arm_of_session(self, trials: tuple[Trial, ...], session_id: str | None, sequence: int) -> Arm:
        """Return the arm that answers the session now, for a task of it that no experiment counts."""
        for running, experiment in trials if session_id is not None else ():
            if experiment.knows(str(session_id)) and (known := experiment.arm_for(str(session_id), in_session=True)):
                outside = {"experiment_id": None, "is_candidate": False, "propensity": 1.0, "program_revision": None}
                return self._arm_in(running, known, sequence).model_copy(update=outside)
        return self.arm(self.adapters.primary, sequence)

    def _open_to(
        self, trials: tuple[Trial, ...], unit_id: str, in_session: bool
    ) -> list[tuple[RunningExperiment, Experiment, float | None]]:
        """The experiments that may take the unit, in turn, each with the share of its treatment if not the plan's.

        A session stays where it began. Beside an experiment the watch has a layer of the units to itself, in which it
        holds back so many that of all traffic it is what its plan says: each unit is in one experiment at most, and
        which one it is says nothing about its arm.
        """
        if in_session and (known := tuple(one for one in trials if one[1].knows(unit_id))):
            trials = known
        if len(trials) != 2:
            return [(running, experiment, None) for running, experiment in trials]
        (running, experiment), (watching, watch) = trials
        if draw(f"layer of {watching.experiment_id}", unit_id) >= WATCH_LAYER:
            return [(running, experiment, None)]
        held_back = min(0.5, (1.0 - watch.share) / WATCH_LAYER)
        return [(watching, watch, 1.0 - held_back), (running, experiment, None)]

    def arm_as_played(self, version: str, sequence: int, **given: Any) -> Arm:
        """An arm for a task of the agent's team, in which this version plays the agent's role and primaries the others;
        of an agent without a team, for a task of its own."""
        if self.first is self:
            return self.arm(version, sequence, **given)
        arm = self.first.arm(self.first.adapters.primary, sequence, **given)
        roles = {
            role: self.role_version(version) if one is self else one.role_version()
            for role, one in self.first.team.items()
        }
        return arm.model_copy(update={"roles": roles})

    def arm(
        self,
        version: str,
        sequence: int,
        *,
        experiment_id: str | None = None,
        is_candidate: bool = False,
        propensity: float = 1.0,
    ) -> Arm:
        """An arm with this version's content named in it, and the program that answers by default."""
        return Arm(
            adapter_version=version,
            adapter_sha256=self.adapters.versions[version].sha256,
            experiment_id=experiment_id,
            is_candidate=is_candidate,
            propensity=propensity,
            sequence=sequence,
            program=self.adapters.programs.primary,
            roles=self._roles(version),
        )

    def _roles(self, version: str) -> dict[str, RoleVersion] | None:
        """Return who answers the calls of each role: this version its own, the primaries of their agents the others."""
        return {role: arms.role_version(version if arms is self else None) for role, arms in self.team.items()} or None

    def role_version(self, version: str | None = None) -> RoleVersion:
        """Return this version, or the primary, as what plays a role of a program."""
        played = version or self.adapters.primary
        sha256 = self.adapters.versions[played].sha256
        return RoleVersion(agent_id=self.agent_id, adapter_version=played, adapter_sha256=sha256)

    def note_admitted(self, work: Work) -> None:
        """A Work is in the log; call it in the log's order."""
        self.open_work(work)
        self._newest_at = work.admitted_at.timestamp()
        for running, experiment in self.judged_here if self.fleet is None else ():
            if work.arm.experiment_id == running.experiment_id:
                experiment.enrol(enrolment_of(work))

    def note_closed(self, work: Work, lines: list[Interaction]) -> None:
        """A task has its lines in the log."""
        self._count_open(work, -1)
        for running, experiment in self.judged_here if self.fleet is None else ():
            if work.arm.experiment_id == running.experiment_id:
                experiment.observe(work.arm.sequence, outcome_of(lines))

    def note_audited(self, line: AuditedTask) -> None:
        """The second verdict on a task, or that it was given up, is in the log."""
        for running, experiment in self.judged_here if self.fleet is None else ():
            if line.arm.experiment_id == running.experiment_id:
                experiment.audit(line.arm.sequence, audit_of(line))

    def open_work(self, work: Work) -> None:
        """A Work that was open when this process started; its experiment was replayed already."""
        self._count_open(work, 1)

    def _count_open(self, work: Work, by: int) -> None:
        self._open[work.arm.adapter_version] += by
        for role, played in (work.arm.roles or {}).items():
            if (partner := self.team.get(role)) is not None and partner is not self:
                partner._open[played.adapter_version] += by

    @property
    def answering(self) -> frozenset[str]:
        """Versions with unanswered tasks: not drained. The base model is never among them."""
        return frozenset(version for version, count in self._open.items() if count > 0 and version != BASE_VERSION)


def names_its_own(task: Task) -> bool:
    """True if its asker says which programs answer it, or answers it himself."""
    return task.programs is not None or task.work_to is not None or task.registered_agent is not None
