"""The orchestrator's tools: tasks, adapters, experiments, queues, dead letters and feedback."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ratchet.mcp.call import Call, prompt_json
from ratchet.mcp.tool_table import Effect, ToolTable
from schemas.api.adapters import AgentView, Reason, VersionDetail
from schemas.api.dead_letters import DeadLetters, Dismissed, Requeued, Restored
from schemas.api.experiments import ExperimentDetail, ExperimentSummary
from schemas.api.page import Page
from schemas.api.programs import ProgramsCompared, ProgramsStanding
from schemas.api.rollouts import FleetRollouts
from schemas.api.runs import RunDetail, RunState, RunView
from schemas.api.status import Queues, Status
from schemas.api.tasks import TaskAccepted, TaskHistory, TaskSummary
from schemas.messages.base import AdapterVersion, AgentId, Identifier, Score
from schemas.messages.feedback import Correction, LoggedFeedback
from schemas.messages.result import Result
from schemas.messages.task import Prompt, Select

LONGEST_WAIT_S = 600

TOOLS = ToolTable("orchestrator")

WhichTask = Annotated[Identifier, Field(description="The task's id, as submit_task or list_tasks gave it.")]
WhichAgent = Annotated[AgentId, Field(description="The agent, such as 'small'; fleet_status lists them.")]
WhichProgram = Annotated[Identifier, Field(description="The program's name, as programs_standing lists it in runs.")]
OneAgent = Annotated[AgentId | None, Field(description="Only this agent's.")]
Cursor = Annotated[str | None, Field(description="`next` of the page before, for the page after it.")]
Limit = Annotated[int, Field(ge=1, le=100, description="Items on a page.")]
Why = Annotated[Reason, Field(description="Why: it is recorded with the decision, under your name.")]
Input = Annotated[Prompt, Field(description="The prompt: text, or a list of chat messages with role and content.")]
WaitS = Annotated[
    float, Field(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for the result; 0 returns at once.")
]
AnyAgent = Annotated[AgentId | None, Field(description="Which agent answers; the fleet's default one if absent.")]
OwnTaskId = Annotated[
    Identifier | None,
    Field(description="Your own id. The same id again returns the same result, never a second run."),
]
RightAnswer = Annotated[
    str | None, Field(description="The right answer, for scorers that verify; agents never see it.")
]
Criteria = Annotated[str | None, Field(description="What a good answer is, for scorers that judge.")]
MaxTokens = Annotated[int | None, Field(ge=1, description="Tokens an answer may have.")]
LetterIds = Annotated[list[str] | None, Field(min_length=1, max_length=1000, description="From list_dead_letters.")]
FailedIn = Annotated[str | None, Field(description="All that failed in this queue, instead of ids.")]
TaskType = Annotated[Identifier | None, Field(description="Tasks of one type are compared with each other.")]


@TOOLS.tool("POST /v1/tasks", Result | TaskAccepted, "Submit a task", Effect.ADDS)
def submit_task(
    input: Input,
    wait_s: WaitS = 30.0,
    agent_id: AnyAgent = None,
    task_id: OwnTaskId = None,
    reference: RightAnswer = None,
    criteria: Criteria = None,
    samples: Annotated[
        int | None, Field(ge=1, le=64, description="Answers to sample; you get the best-scored.")
    ] = None,
    temperature: Annotated[
        float | None, Field(ge=0, le=5, description="Of the sampling; the fleet's if absent.")
    ] = None,
    max_tokens: MaxTokens = None,
    adapter_version: Annotated[
        AdapterVersion | None, Field(description="Have this version answer; no experiment counts it then.")
    ] = None,
    task_type: TaskType = None,
    session_id: Annotated[Identifier | None, Field(description="Tasks of one session get the same adapter.")] = None,
    priority: Annotated[int, Field(ge=0, le=9, description="5 and above overtakes what waits below 5.")] = 0,
) -> Call:
    """Give the fleet a task: an agent samples several answers, a scorer scores them, you get the best one.

    If the result comes within wait_s you get it, with its score and the adapter version that answered (status ok,
    failed or expired). If not, you get state "open" and the task goes on: ask get_task with its task_id later.
    Cancelling ends the waiting only, not the task. Every task is logged, and future adapters are trained on it.
    """
    body = {
        "input": prompt_json(input),
        "agent_id": agent_id,
        "task_id": task_id,
        "reference": reference,
        "criteria": criteria,
        "samples": samples,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "adapter_version": adapter_version,
        "task_type": task_type,
        "session_id": session_id,
        "priority": priority,
        "metadata": {"source": "mcp"},
    }
    return Call(query={"wait_s": wait_s}, body=body, wait_s=wait_s, awaited="waiting for the result of the task")


@TOOLS.tool("POST /v1/deliberate", Result | TaskAccepted, "Deliberate", Effect.ADDS)
def deliberate(
    input: Input,
    samples: Annotated[int, Field(ge=1, le=64, description="Answers to sample.")] = 8,
    select: Annotated[
        Select,
        Field(
            description="Which you get: best-scored, what most say (majority), what the judge prefers among the best, "
            "or the first that passes, at which the others are called off."
        ),
    ] = "best",
    pass_score: Annotated[
        float | None, Field(gt=0, le=1, description="Of first-passing: the score that passes; 1.0 if absent.")
    ] = None,
    deadline: Annotated[
        str | None,
        Field(description="ISO 8601, such as 2026-01-15T09:31:00Z: then you get the best there is by that time."),
    ] = None,
    wait_s: WaitS = 30.0,
    agent_id: AnyAgent = None,
    task_id: OwnTaskId = None,
    reference: RightAnswer = None,
    criteria: Criteria = None,
    max_tokens: MaxTokens = None,
    task_type: TaskType = None,
) -> Call:
    """Have several answers to one question made side by side, and get one of them, chosen as you say.

    It is submit_task with a way to choose. At the deadline you get the best of what is scored by then (partial: true).
    If nothing comes within wait_s, you get state "open" and the task goes on: ask get_task with its task_id later.
    """
    body = {
        "input": prompt_json(input),
        "samples": samples,
        "select": select,
        "pass_score": pass_score,
        "deadline": deadline,
        "agent_id": agent_id,
        "task_id": task_id,
        "reference": reference,
        "criteria": criteria,
        "max_tokens": max_tokens,
        "task_type": task_type,
        "metadata": {"source": "mcp"},
    }
    return Call(query={"wait_s": wait_s}, body=body, wait_s=wait_s, awaited="waiting for the answers")


@TOOLS.tool("GET /v1/tasks/{task_id}", TaskHistory, "Show a task", Effect.READS)
def get_task(task_id: WhichTask) -> Call:
    """One task's whole history: its way through the fleet hop by hop, each sampled answer with its score and the
    scorer's reason, the adapter version it got and why (experiment, share), and the result. Start here to explain
    an answer.
    """
    return Call(path={"task_id": task_id})


@TOOLS.tool("GET /v1/tasks", Page[TaskSummary], "List tasks", Effect.READS)
def list_tasks(
    state: Annotated[
        Literal["open", "closed", "ok", "failed", "expired"] | None,
        Field(description="Only those; closed: all but open."),
    ] = None,
    agent_id: OneAgent = None,
    cursor: Cursor = None,
    limit: Limit = 20,
) -> Call:
    """Tasks, the newest first, with the beginning of the input and of the answer. get_task shows one whole."""
    return Call(query={"state": state, "agent_id": agent_id, "cursor": cursor, "limit": limit})


@TOOLS.tool("GET /v1/adapters", Page[AgentView], "List adapters", Effect.READS)
def list_adapters(
    agent_id: OneAgent = None,
    cursor: Cursor = None,
    limit: Annotated[
        int | None, Field(ge=1, le=100, description="So many of the newest versions of each agent; all if absent.")
    ] = None,
) -> Call:
    """Each agent's adapter versions: which is primary (answers the users), which is candidate (being tried on a
    share of the traffic), each version's state in a sentence, its parent, and how its experiments ended. A cursor
    goes with agent_id and limit.
    """
    return Call(query={"agent_id": agent_id, "cursor": cursor, "limit": limit})


@TOOLS.tool("GET /v1/adapters/{agent_id}/{version}", VersionDetail, "Show an adapter", Effect.READS)
def show_adapter(
    agent_id: WhichAgent, version: Annotated[AdapterVersion, Field(description="Such as 'v1.0.2'.")]
) -> Call:
    """One adapter version whole: its card (data window, hyperparameters, metrics), its training curves, and every
    decision on it with the evidence. It tells why a version was promoted, rejected or rolled back.
    """
    return Call(path={"agent_id": agent_id, "version": version})


@TOOLS.tool("POST /v1/adapters/{agent_id}/promote", AgentView, "Promote an adapter", Effect.REPLACES)
def promote(
    agent_id: WhichAgent,
    version: Annotated[AdapterVersion, Field(description="Which becomes the primary.")],
    reason: Why,
) -> Call:
    """Make a version the primary by hand, so that it answers all users, without waiting for the experiment's proof.
    The old primary keeps a small share and can still win. Ask the user first; read experiment_status before.
    """
    return Call(path={"agent_id": agent_id}, body={"version": version, "reason": reason})


@TOOLS.tool("POST /v1/adapters/{agent_id}/rollback", AgentView, "Roll an adapter back", Effect.REPLACES)
def rollback(
    agent_id: WhichAgent,
    reason: Why,
    version: Annotated[
        AdapterVersion | None,
        Field(description="What leaves the traffic; if absent the candidate, or else the primary."),
    ] = None,
    to: Annotated[
        AdapterVersion | None, Field(description="What takes the primary's place; the previous primary if absent.")
    ] = None,
) -> Call:
    """Take a version out of the traffic now: a candidate ends its experiment, a primary is replaced by the one
    before it. Ask the user first; a harmful candidate is rolled back by the fleet itself.
    """
    return Call(path={"agent_id": agent_id}, body={"version": version, "to": to, "reason": reason})


@TOOLS.tool("POST /v1/adapters/{agent_id}/freeze", AgentView, "Freeze an agent", Effect.SETS)
def freeze(agent_id: WhichAgent, reason: Why) -> Call:
    """Stop an agent's adapters from changing: no experiment begins, nothing is promoted, until unfreeze."""
    return Call(path={"agent_id": agent_id}, body={"reason": reason})


@TOOLS.tool("POST /v1/adapters/{agent_id}/unfreeze", AgentView, "Unfreeze an agent", Effect.SETS)
def unfreeze(agent_id: WhichAgent, reason: Why) -> Call:
    """Let a frozen agent's adapters change again: experiments begin, and what proves better is promoted."""
    return Call(path={"agent_id": agent_id}, body={"reason": reason})


@TOOLS.tool("POST /v1/adapters/{agent_id}/reanchor", AgentView, "Take the scorer as it is now", Effect.SETS)
def reanchor(agent_id: WhichAgent, reason: Why) -> Call:
    """Accept a scorer that has drifted because it was changed on purpose: its scores become the measure, and
    learning goes on. Ask the user first; once the scorer is back, learning goes on by itself."""
    return Call(path={"agent_id": agent_id}, body={"reason": reason})


@TOOLS.tool("GET /v1/experiments", Page[ExperimentSummary], "List experiments", Effect.READS)
def list_experiments(agent_id: OneAgent = None, cursor: Cursor = None, limit: Limit = 20) -> Call:
    """Experiments, the newest first: which version was tried against which, and how it ended."""
    return Call(query={"agent_id": agent_id, "cursor": cursor, "limit": limit})


@TOOLS.tool("GET /v1/experiments/{experiment_id}", ExperimentDetail, "Show an experiment", Effect.READS)
def experiment_status(
    experiment_id: Annotated[
        str, Field(min_length=1, max_length=200, description="From list_experiments or list_adapters.")
    ],
) -> Call:
    """One experiment: the verdict so far with its reason, the e-values (gain at the plan's promote_at promotes, harm at
    its roll_back_at rolls back), both arms' scores, and the band around the effect over time. It may be read at any
    moment: looking does no harm to it.
    """
    return Call(path={"experiment_id": experiment_id})


@TOOLS.tool("GET /v1/programs", ProgramsCompared, "Compare programs", Effect.READS)
def compare_programs(agent_id: OneAgent = None) -> Call:
    """The programs that answer an agent's tasks, side by side, out of the log: mean score with its interval, calls,
    tokens and seconds of a rollout, how rollouts ended, what broke their conversations. It is no experiment: programs
    may have answered different tasks.
    """
    return Call(query={"agent_id": agent_id})


@TOOLS.tool("GET /v1/programs/{agent_id}", ProgramsStanding, "Show where programs stand", Effect.READS)
def programs_standing(agent_id: WhichAgent) -> Call:
    """Show which of an agent's programs answers by default (primary), which is tried against it (candidate), the
    experiment that runs, how earlier ones ended, and which programs runners have."""
    return Call(path={"agent_id": agent_id})


@TOOLS.tool("POST /v1/programs/{agent_id}/try", ProgramsStanding, "Try a program", Effect.ADDS)
def try_program(agent_id: WhichAgent, program: WhichProgram, reason: Why) -> Call:
    """Ask for an experiment of a program against the one that answers by default, on a share of the traffic that grows.
    It takes over only once it is proved better; experiment_status shows how it goes. Ask the user first.
    """
    return Call(path={"agent_id": agent_id}, body={"program": program, "reason": reason})


@TOOLS.tool("POST /v1/programs/{agent_id}/promote", ProgramsStanding, "Promote a program", Effect.REPLACES)
def promote_program(agent_id: WhichAgent, program: WhichProgram, reason: Why) -> Call:
    """Have a program answer all of an agent's tasks by hand, without proof. The one before it keeps a small share and
    can still win. Ask the user first.
    """
    return Call(path={"agent_id": agent_id}, body={"program": program, "reason": reason})


@TOOLS.tool("POST /v1/programs/{agent_id}/rollback", ProgramsStanding, "Roll a program back", Effect.REPLACES)
def rollback_program(
    agent_id: WhichAgent,
    reason: Why,
    program: Annotated[
        Identifier | None, Field(description="What leaves the traffic; the one that answers by default if absent.")
    ] = None,
) -> Call:
    """Take a program out of the traffic now: a candidate ends its experiment, the one that answers by default is
    replaced by the one before it. Ask the user first.
    """
    return Call(path={"agent_id": agent_id}, body={"program": program, "reason": reason})


@TOOLS.tool("GET /v1/rollouts", FleetRollouts, "List rollouts", Effect.READS)
def list_rollouts(
    task_id: Annotated[Identifier | None, Field(description="Only this task's.")] = None, agent_id: OneAgent = None
) -> Call:
    """List the rollouts that run now, over all runners, with their calls of the model and tokens so far, and how the
    newest that ended did."""
    return Call(query={"task_id": task_id, "agent_id": agent_id})


@TOOLS.tool("GET /v1/trainings", Page[RunView], "List trainings", Effect.READS)
def list_trainings(
    agent_id: OneAgent = None,
    state: Annotated[RunState | None, Field(description="Only in this state.")] = None,
    cursor: Cursor = None,
    limit: Limit = 20,
) -> Call:
    """Training runs, the newest first, by whomever they were asked for: what each made, or why it was refused or
    failed, with the numbers. It answers also while no trainer is up.
    """
    return Call(query={"agent_id": agent_id, "state": state, "cursor": cursor, "limit": limit})


@TOOLS.tool("GET /v1/trainings/{run_id}", RunDetail, "Show a training", Effect.READS)
def training_status(
    run_id: Annotated[Identifier, Field(description="From list_trainings or start_training.")],
) -> Call:
    """One training run: how far it is and the seconds left, its curves so far, the groups it used and left out, and the
    reason if it was refused or failed.
    """
    return Call(path={"run_id": run_id})


@TOOLS.tool("GET /v1/queues", Queues, "Show the queues", Effect.READS)
def queues() -> Call:
    """Every queue: how many messages wait and how many consumers it has. Messages without consumers mean that a
    service is away; the retry queues say what is being tried again.
    """
    return Call()


@TOOLS.tool("GET /v1/dead-letters", DeadLetters, "List dead letters", Effect.READS)
def list_dead_letters(cursor: Cursor = None, limit: Limit = 20) -> Call:
    """Messages that could not be handled, the oldest first, each with the reason in a sentence and the queue it
    failed in.
    """
    return Call(query={"cursor": cursor, "limit": limit})


@TOOLS.tool("POST /v1/dead-letters/requeue", Requeued, "Requeue dead letters", Effect.ADDS)
def requeue_dead_letters(ids: LetterIds = None, queue: FailedIn = None) -> Call:
    """Send dead letters back to the queue they failed in, after what made them fail is mended: by id, or all of a
    queue. What was done already is not done twice.
    """
    return Call(body={"ids": ids, "queue": queue})


@TOOLS.tool("POST /v1/dead-letters/dismiss", Dismissed, "Dismiss dead letters", Effect.REMOVES)
def dismiss_dead_letters(
    reason: Annotated[Reason, Field(description="Why: it is kept with each letter, under your name.")],
    ids: LetterIds = None,
    queue: FailedIn = None,
) -> Call:
    """Put dead letters away that nobody needs: by id, or all of a queue. Each is kept whole in a file of the logs
    folder, with the reason; restore_dead_letters sends it back. Read them, and ask the user first.
    """
    return Call(body={"ids": ids, "queue": queue, "reason": reason})


@TOOLS.tool("POST /v1/dead-letters/restore", Restored, "Restore dismissed dead letters", Effect.ADDS)
def restore_dead_letters(
    ids: Annotated[list[str], Field(min_length=1, max_length=1000, description="As list_dead_letters showed them.")],
    reason: Annotated[Reason, Field(description="Why: it is kept beside the letter, under your name.")],
) -> Call:
    """Send dead letters that were dismissed to the queue they failed in after all, by id. One that was restored before
    is not sent again.
    """
    return Call(body={"ids": ids, "reason": reason})


@TOOLS.tool("GET /v1/status", Status, "Show the fleet at a glance", Effect.READS)
def fleet_status() -> Call:
    """The fleet at a glance: is it ready and if not why, tasks open and answered, seconds at each stage, scores by
    adapter version, each agent's primary, candidate and experiment, dead letters. The first thing to look at.
    """
    return Call()


@TOOLS.tool("POST /v1/feedback", LoggedFeedback, "Give feedback on an answer", Effect.ADDS)
def give_feedback(
    task_id: WhichTask,
    score: Annotated[Score, Field(description="From 0 (useless) to 1 (just right).")],
    reason: Annotated[str | None, Field(max_length=2000, description="Why, for people who read the log.")] = None,
    sample: Annotated[int | None, Field(ge=0, description="Which sample; the one the user got if absent.")] = None,
    feedback_id: Annotated[Identifier | None, Field(description="Your own id: the same one again counts once.")] = None,
    correction: Annotated[Correction | None, Field(description="The answer as it should have been.")] = None,
) -> Call:
    """Say how good an answer turned out to be. Training then learns from this score in place of the scorer's, and
    from the correction."""
    body = {
        "task_id": task_id,
        "score": score,
        "reason": reason,
        "sample": sample,
        "feedback_id": feedback_id,
        "correction": correction,
    }
    return Call(body=body)
