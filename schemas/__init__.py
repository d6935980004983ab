"""The contract: one module per message or record. pydantic only; imports nothing of ours."""

from schemas.adapter_card import AdapterCard, AdapterManifest
from schemas.adapter_event import AdapterEvent
from schemas.adapter_report import AdapterReport
from schemas.adapter_trained import AdapterTrained
from schemas.agent_rewards import AgentRewards
from schemas.decision import Decision
from schemas.feedback import Feedback, LoggedFeedback
from schemas.interaction import Interaction
from schemas.message import DecodeError, Message
from schemas.registry import Registry
from schemas.response import Response
from schemas.result import Result
from schemas.reward import Reward
from schemas.task import Task
from schemas.train_request import TrainRequest
from schemas.work import Work

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
    Feedback,
)
RECORDS: tuple[type[Message], ...] = (Interaction, LoggedFeedback, AdapterCard, AdapterManifest, Decision, Registry)

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
