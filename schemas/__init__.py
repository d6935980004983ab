"""The contract: one module per message or record. pydantic only; imports nothing of ours."""

from schemas.messages.adapter_event import AdapterEvent, AdapterReport
from schemas.messages.approval_request import ApprovalRequest
from schemas.messages.base import DecodeError, Message
from schemas.messages.feedback import Feedback, LoggedFeedback
from schemas.messages.response import Response
from schemas.messages.result import Result
from schemas.messages.reward import AgentRewards, Reward
from schemas.messages.runner_rollouts import RunnerRollouts
from schemas.messages.task import Task, TaskCancelled
from schemas.messages.training import AdapterTrained, TrainRequest
from schemas.messages.work import Work
from schemas.records.adapter_card import AdapterCard, AdapterManifest
from schemas.records.approval import LoggedApproval
from schemas.records.audit import AuditedTask, LoggedLabel
from schemas.records.decision import Decision
from schemas.records.interaction import Interaction
from schemas.records.registry import Registry

MESSAGES: tuple[type[Message], ...] = (
    Task,
    Work,
    Response,
    Reward,
    Result,
    TrainRequest,
    AdapterTrained,
    AdapterEvent,
    AdapterReport,
    AgentRewards,
    RunnerRollouts,
    ApprovalRequest,
    TaskCancelled,
    Feedback,
)
RECORDS: tuple[type[Message], ...] = (
    Interaction,
    AuditedTask,
    LoggedLabel,
    LoggedApproval,
    LoggedFeedback,
    AdapterCard,
    AdapterManifest,
    Decision,
    Registry,
)

__all__ = [
    "MESSAGES",
    "RECORDS",
    "DecodeError",
    "Interaction",
    "Message",
    "Response",
    "Result",
    "Reward",
    "Task",
    "Work",
]
