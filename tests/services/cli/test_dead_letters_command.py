"""`ratchet dead-letters` as a process, on a real broker; what becomes of the letters is in ratchet/bus/dead_letters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

from ratchet.bus.amqp.frames import Properties
from ratchet.bus.amqp.short_connection import open_connection
from ratchet.bus.dead_letters.dismissals import FILE
from ratchet.bus.dead_letters.letter import Selection, dead_letter, listing
from ratchet.bus.topology import UNROUTABLE, fleet_topology
from services.cli.dead_letters import describe_selection
from tests.acceptance.ratchet_command import ForkedRatchet

pytestmark = pytest.mark.broker


@pytest.fixture
def channel(amqp_url: str, namespace: str) -> Iterator[BlockingChannel]:
    """Of a broker with an exchange whose unroutable messages are kept."""
    with open_connection(amqp_url) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = namespace + UNROUTABLE
        channel.queue_declare(queue, durable=True, arguments=fleet_topology(("small",)).queue(UNROUTABLE).arguments)
        alternate = {"alternate-exchange": f"{namespace}ratchet.unroutable"}
        channel.exchange_declare(alternate["alternate-exchange"], "fanout", durable=True)
        channel.exchange_declare(f"{namespace}ratchet", "topic", durable=True, arguments=alternate)
        channel.queue_bind(queue, alternate["alternate-exchange"])
        yield channel


def test_the_unroutable_is_listed_shown_and_sent_on(
    channel: BlockingChannel, amqp_url: str, namespace: str, tmp_path: Path
) -> None:
    ratchet = ForkedRatchet(tmp_path, {"RATCHET_AMQP_URL": amqp_url, "RATCHET_NAMESPACE": namespace})
    target = f"{namespace}work.echo"
    channel.basic_publish(f"{namespace}ratchet", target, b"for echo", BasicProperties(delivery_mode=2))

    # when somebody looks
    (listed,) = ratchet("dead-letters", "list", "--unroutable", "--json").json
    shown = ratchet("dead-letters", "show", listed["id"], "--unroutable", "--json").json
    # then it says where it was sent to and what to do
    assert (listed["queue"], shown["body"]) == (target, "for echo")
    assert "RATCHET_AGENTS" in shown["advice"]

    # when it is sent on before there is a queue
    early = ratchet("dead-letters", "requeue", "--all", "--unroutable")
    # then it stays, with a sentence
    assert (early.code, early.out) == (1, "0 sent back\n")
    assert f"there is no queue {target}" in early.err

    # and it goes once there is one
    channel.queue_declare(target, durable=True, arguments={"x-queue-type": "quorum"})
    ran = ratchet("dead-letters", "requeue", listed["id"], "--unroutable")
    assert (ran.code, ran.out) == (0, "1 sent back\n")
    assert channel.basic_get(target, auto_ack=True)[2] == b"for echo"
    assert ratchet("dead-letters", "list", "--unroutable").out == "No unroutable messages.\n"
    gone = ratchet("dead-letters", "show", listed["id"], "--unroutable")
    assert (gone.code, "ratchet dead-letters list --unroutable" in gone.err) == (1, True)


def test_what_nobody_needs_is_dismissed_by_what_its_reason_says_kept_and_restored(
    channel: BlockingChannel, amqp_url: str, namespace: str, tmp_path: Path
) -> None:
    ratchet = ForkedRatchet(tmp_path, {"RATCHET_AMQP_URL": amqp_url, "RATCHET_NAMESPACE": namespace})
    lasting = BasicProperties(delivery_mode=2)
    for name in ("misspelt", "work.echo"):
        channel.basic_publish(f"{namespace}ratchet", namespace + name, b"for " + name.encode(), lasting)
    (listed,) = ratchet("dead-letters", "list", "--unroutable", "--matching", "MISSPELT", "--json").json
    dismiss = ("dead-letters", "dismiss", "--unroutable", "--reason", "a typo")

    # when nobody can be asked whether several are meant
    unasked = ratchet(*dismiss, "--matching", "misspelt")
    # then none goes
    assert (unasked.code, "would dismiss 1 unroutable message: add --yes" in unasked.err) == (2, True)
    assert ratchet(*dismiss, "--matching", "", "--yes").code == 2

    done = ratchet(*dismiss, "--matching", "misspelt", "--yes", "--json").json
    again = ratchet(*dismiss, listed["id"], "--json").json
    assert done == again == {"dismissed": 1, "missing": [], "file": str(tmp_path / "logs" / FILE)}
    (line,) = (json.loads(line) for line in Path(done["file"]).read_text().splitlines())
    assert (line["reason"], line["letter"]["body"], line["letter"]["id"]) == ("a typo", "for misspelt", listed["id"])

    # and restored to a queue there is by now, or not
    restore = ("dead-letters", "restore", listed["id"], "no-such-letter", "--reason", "meant after all")
    stays = ratchet(*restore)
    assert (stays.code, "there is no queue" in stays.err, "no dismissed letter 'no-such-letter'" in stays.err) == (
        1,
        True,
        True,
    )
    channel.queue_declare(f"{namespace}misspelt", auto_delete=True)
    assert ratchet(*restore, "--json").json == {"restored": 1, "missing": ["no-such-letter"], "stayed": []}
    assert channel.basic_get(f"{namespace}misspelt", auto_ack=True)[2] == b"for misspelt"
    channel.queue_delete(f"{namespace}misspelt")

    # and the other stays
    (left,) = ratchet("dead-letters", "list", "--unroutable", "--json").json
    assert left["beginning"] == "for work.echo"
    unknown = ratchet(*dismiss, "no-such-letter", "nor-this")
    assert (unknown.code, "no unroutable message 'no-such-letter', 'nor-this'" in unknown.err) == (1, True)


def test_a_look_that_was_cut_short_says_at_least() -> None:
    letter = dead_letter(Properties(headers={"x-ratchet-reason": "a typo"}), b"", "")
    typos = Selection(matching="TYPO")

    assert describe_selection(listing([letter], 1, 0.0), typos, "dead letter") == "1 dead letter"
    assert describe_selection(listing([letter] * 2, 3, 0.0), typos, "dead letter") == "at least 2 dead letters"
