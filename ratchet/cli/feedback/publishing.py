"""Feedback from the command line: made, and published as any application would."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker, NackError
from pika.spec import BasicProperties
from pydantic import ValidationError

from ratchet.bus.amqp.short_connection import connected
from ratchet.bus.message_id import derived_id
from ratchet.bus.topology import EXCHANGE, FEEDBACK
from ratchet.cli.fleet.folder import FleetAccess
from ratchet.cli.terminal.errors import CommandError, UsageError
from schemas.messages.base import Metadata, explain
from schemas.messages.feedback import Feedback


def new_feedback(fields: dict[str, Any]) -> Feedback:
    """Of these fields, those that are None left out, with an id. Raises UsageError naming what is at fault."""
    given = {name: value for name, value in fields.items() if value is not None}
    given.setdefault("feedback_id", f"feedback-{uuid.uuid4().hex}")
    try:
        return Feedback(metadata=Metadata(timestamp=datetime.now(UTC), source="ratchet feedback"), **given)
    except ValidationError as error:
        raise UsageError(explain(Feedback.TYPE, error)) from None


def publish_feedback(access: FleetAccess, feedback: Feedback) -> None:
    """Returns once the broker has it. Raises BusError, CommandError where no fleet ever was."""
    properties = BasicProperties(
        content_type="application/json",
        delivery_mode=pika.DeliveryMode.Persistent.value,
        type=Feedback.TYPE,
        message_id=derived_id(feedback.feedback_id or "", "feedback"),
    )
    with connected(access.amqp_url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            channel.basic_publish(
                access.namespace + EXCHANGE, access.namespace + FEEDBACK, feedback.encode(), properties
            )
        except ChannelClosedByBroker as error:
            raise CommandError(
                f"the broker refused it ({error.reply_text}): was the fleet ever up here? ratchet up"
            ) from None
        except NackError:
            raise CommandError(f"the broker refused it: is the queue {FEEDBACK!r} full? ratchet watch") from None
