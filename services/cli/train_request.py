"""Ask the running fleet's trainer for a new adapter. How it ended is told to the orchestrator, and in the registry."""

from __future__ import annotations

import pika
from pika.exceptions import NackError, UnroutableError
from pika.spec import BasicProperties

from schemas.train_request import TrainRequest
from services.cli.amqp import connected
from services.cli.exit_codes import CommandError
from services.cli.fleet_access import FleetAccess
from services.message_id import derived_id
from services.topology import TRAINING


def publish_train_request(access: FleetAccess, request: TrainRequest) -> None:
    """Returns once the broker has it. Raises BusError, CommandError where no fleet ever was."""
    properties = BasicProperties(
        content_type="application/json",
        delivery_mode=pika.DeliveryMode.Persistent.value,
        type=TrainRequest.TYPE,
        message_id=derived_id(request.request_id, "train"),
    )
    with connected(access.amqp_url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        try:
            channel.basic_publish("", access.namespace + TRAINING, request.encode(), properties, mandatory=True)
        except UnroutableError:
            raise CommandError(
                f"the broker has no queue {TRAINING!r}: the fleet was never up here: ratchet up"
            ) from None
        except NackError:
            raise CommandError(
                f"the broker refused the request: is the queue {TRAINING!r} full? ratchet watch"
            ) from None
