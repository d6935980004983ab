"""The promises of ratchet/bus/protocol.py, kept by RabbitMQ and by the double in memory alike."""

from __future__ import annotations

import asyncio
import errno
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from ratchet.bus.in_hand import NEVER
from ratchet.bus.protocol import Bus, Delivery
from ratchet.bus.retry_policy import AT, ATTEMPTS, BY, MAX_ATTEMPTS, QUEUE, REASON
from ratchet.bus.topology import DEAD_LETTERS, KEPT_RESPONSES, RESPONSES, REWARDS, TASKS, UNROUTABLE
from ratchet.service.errors import BusError, DiskFull, Reject, Retry, StorageUnavailable
from ratchet.service.telemetry import TRACE_HEADER, trace_parent
from tests.ratchet.bus.bus_kit import QUICK_LADDER, MemoryFleet, RabbitFleet, Recorder, put
from tests.waiting import settled, until

TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.broker)])
async def fleet(request: pytest.FixtureRequest) -> AsyncIterator[MemoryFleet | RabbitFleet]:
    fleet: MemoryFleet | RabbitFleet
    if request.param == "memory":
        fleet = MemoryFleet()
    else:
        fleet = RabbitFleet(request.getfixturevalue("amqp_url"), request.getfixturevalue("namespace"))
    await fleet.bus.start()
    yield fleet
    await fleet.bus.stop(0)


@pytest.fixture
def bus(fleet: MemoryFleet | RabbitFleet) -> Bus:
    return fleet.bus


async def restart(bus: Bus) -> None:
    await bus.stop(0)
    await bus.start()


async def empty(bus: Bus, queue: str) -> bool:
    return (await bus.state(queue)).messages == 0


async def test_a_delivery_carries_what_was_published(bus: Bus) -> None:
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=4)

    await bus.publish(
        TASKS,
        b'{"a":1}',
        type="task.v1",
        message_id="m1",
        reply_to="me",
        correlation_id="c1",
        headers={"x": "y", "n": 7},
    )

    (delivery,) = await handler.until(1)
    assert (delivery.queue, delivery.body, delivery.type) == (TASKS, b'{"a":1}', "task.v1")
    assert (delivery.message_id, delivery.reply_to, delivery.correlation_id) == ("m1", "me", "c1")
    assert (delivery.headers["x"], delivery.headers["n"]) == ("y", 7)
    assert (delivery.attempt, delivery.redelivered) == (0, False)


async def test_messages_come_in_the_order_of_publishing(bus: Bus) -> None:
    handler = Recorder()
    for number in range(50):
        await put(bus, TASKS, b"%d" % number)

    await bus.consume(TASKS, handler, prefetch=8)

    await handler.until(50)
    assert handler.bodies == [b"%d" % number for number in range(50)]


async def test_what_was_handled_does_not_come_back(bus: Bus) -> None:
    first = Recorder()
    await bus.consume(TASKS, first, prefetch=16)
    await asyncio.gather(*(put(bus, TASKS, b"%d" % number) for number in range(200)))
    await first.until(200)

    assert await bus.stop(5)
    await bus.start()

    again = Recorder()
    await bus.consume(TASKS, again, prefetch=16)
    await put(bus, TASKS, b"last")
    await again.until(1)
    assert again.bodies == [b"last"]
    assert sorted(first.bodies) == sorted(b"%d" % number for number in range(200))


async def test_handlers_run_up_to_the_prefetch_at_once(bus: Bus) -> None:
    gate, now, most = asyncio.Event(), 0, 0

    async def hold(_delivery: Delivery) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await gate.wait()
        now -= 1

    handler = Recorder(hold)
    await bus.consume(TASKS, handler, prefetch=4)
    for number in range(12):
        await put(bus, TASKS, b"%d" % number)

    await handler.until(4)
    await settled(0.1)
    assert (now, most) == (4, 4)
    gate.set()
    await handler.until(12)
    assert most == 4


async def test_retry_comes_back_after_each_rung_with_the_attempt_counted(bus: Bus) -> None:
    times: list[float] = []

    async def refuse_twice(delivery: Delivery) -> None:
        times.append(asyncio.get_running_loop().time())
        if delivery.attempt < 2:
            raise Retry("not now")

    handler = Recorder(refuse_twice)
    await bus.consume(TASKS, handler, prefetch=4)
    await bus.publish(
        TASKS, b"t", type="task.v1", message_id="m", reply_to="me", correlation_id="c", headers={TRACE_HEADER: TRACE}
    )

    await handler.until(3)
    assert [delivery.attempt for delivery in handler.got] == [0, 1, 2]
    assert [delivery.redelivered for delivery in handler.got] == [False, True, True]
    last = handler.got[-1]
    assert (last.body, last.type, last.message_id, last.reply_to, last.correlation_id) == (
        b"t", "task.v1", "m", "me", "c",
    )  # fmt: skip
    assert last.headers[TRACE_HEADER] == TRACE
    assert times[1] - times[0] >= 0.9 * QUICK_LADDER[0].delay_ms / 1000
    assert times[2] - times[1] >= 0.9 * QUICK_LADDER[1].delay_ms / 1000


async def stumble_once(delivery: Delivery) -> None:
    if not delivery.attempt:
        raise ZeroDivisionError("oops")


async def await_something_cancelled(delivery: Delivery) -> None:
    if not delivery.attempt:
        something = asyncio.get_running_loop().create_future()
        something.cancel()
        await something


@pytest.mark.parametrize("stumble", [stumble_once, await_something_cancelled])
async def test_an_unexpected_error_is_a_retry_and_a_cancellation_that_is_not_the_buss(
    bus: Bus, stumble: Callable[[Delivery], Awaitable[None]]
) -> None:
    handler = Recorder(stumble)
    await bus.consume(TASKS, handler, prefetch=1)
    await put(bus, TASKS, b"t")

    await handler.until(2)
    assert [delivery.attempt for delivery in handler.got] == [0, 1]


async def test_what_waits_on_a_rung_lets_others_pass(bus: Bus) -> None:
    async def refuse_the_first(delivery: Delivery) -> None:
        if delivery.body == b"first" and not delivery.attempt:
            raise Retry("not now")

    handler = Recorder(refuse_the_first)
    await put(bus, TASKS, b"first")
    await put(bus, TASKS, b"second")
    await bus.consume(TASKS, handler, prefetch=1)

    await handler.until(3)
    assert handler.bodies == [b"first", b"second", b"first"]


async def test_reject_goes_whole_to_the_dead_letters_with_the_reason(bus: Bus) -> None:
    async def reject(_delivery: Delivery) -> None:
        raise Reject("not a task: no input")

    buried = Recorder()
    await bus.consume(TASKS, Recorder(reject), prefetch=4)
    await bus.consume(DEAD_LETTERS, buried, prefetch=4)
    await bus.publish(
        TASKS, b"\xff\x00bad", type="task.v1", message_id="m", reply_to="me", correlation_id="c", headers={"x": "y"}
    )

    (letter,) = await buried.until(1)
    assert (letter.body, letter.type, letter.message_id) == (b"\xff\x00bad", "task.v1", "m")
    assert (letter.reply_to, letter.correlation_id, letter.headers["x"]) == ("me", "c", "y")
    assert letter.headers[REASON] == "not a task: no input"
    assert (letter.headers[QUEUE], letter.headers[ATTEMPTS]) == (TASKS, 1)
    assert letter.headers[AT].endswith("+00:00")
    assert letter.headers[BY] in ("contract", "memory")
    await until(lambda: empty(bus, TASKS), "an empty tasks queue")


async def test_after_eight_attempts_a_message_is_given_up(bus: Bus) -> None:
    async def fail(_delivery: Delivery) -> None:
        raise ValueError("never works")

    handler, buried = Recorder(fail), Recorder()
    await bus.consume(TASKS, handler, prefetch=4)
    await bus.consume(DEAD_LETTERS, buried, prefetch=4)
    await put(bus, TASKS, b"t")

    (letter,) = await buried.until(1)
    assert [delivery.attempt for delivery in handler.got] == list(range(MAX_ATTEMPTS))
    assert letter.headers[ATTEMPTS] == MAX_ATTEMPTS
    assert letter.headers[REASON] == f"still failing after {MAX_ATTEMPTS} attempts; the last: ValueError: never works"


@pytest.mark.parametrize(
    "fault",
    [
        BusError("broker away"),
        DiskFull("no space"),
        StorageUnavailable("read-only"),
        OSError(errno.EIO, "input/output error"),
        OSError(errno.ESTALE, "stale file handle", "adapters/adapter_registry.json"),
    ],
)
async def test_a_fault_that_is_not_the_messages_runs_the_handler_again_in_place(bus: Bus, fault: Exception) -> None:
    faults = [fault, fault]

    async def fail_at_first(_delivery: Delivery) -> None:
        if faults:
            raise faults.pop()

    handler, buried = Recorder(fail_at_first), Recorder()
    await bus.consume(TASKS, handler, prefetch=1)
    await bus.consume(DEAD_LETTERS, buried, prefetch=1)
    await put(bus, TASKS, b"first")
    await put(bus, TASKS, b"second")

    await handler.until(4)
    assert handler.bodies == [b"first", b"first", b"first", b"second"]
    assert {delivery.attempt for delivery in handler.got} == {0}
    assert buried.got == []


async def test_a_reply_reaches_the_users_own_queue(fleet: MemoryFleet | RabbitFleet) -> None:
    name = f"user-{uuid.uuid4().hex}"
    read = await fleet.open_reply_queue(name)

    assert await fleet.bus.reply(name, b"42", type="result.v1", message_id="r1", correlation_id="c1")

    (reply,) = await read()
    assert (reply.body, reply.type, reply.message_id, reply.correlation_id) == (b"42", "result.v1", "r1", "c1")


async def test_a_reply_to_a_queue_that_is_gone_says_so(bus: Bus) -> None:
    gone = f"gone-{uuid.uuid4().hex}"
    answers = await asyncio.gather(
        *(bus.reply(gone, b"42", type="result.v1", message_id=f"r{n}", correlation_id=None) for n in range(20))
    )
    assert answers == [False] * 20


async def test_what_no_queue_takes_is_kept_as_unroutable(bus: Bus) -> None:
    await put(bus, "work.nobody", b"t")

    await until(lambda: _holds(bus, UNROUTABLE, 1), "one unroutable message")
    stray = Recorder()
    await bus.consume(UNROUTABLE, stray, prefetch=1)
    (delivery,) = await stray.until(1)
    assert delivery.body == b"t"


async def _holds(bus: Bus, queue: str, messages: int) -> bool:
    return (await bus.state(queue)).messages == messages


async def test_the_state_of_a_queue_is_its_depth_and_its_consumers(bus: Bus) -> None:
    for number in range(3):
        await put(bus, TASKS, b"%d" % number)
    await bus.consume(REWARDS, Recorder(), prefetch=1)

    await until(lambda: _holds(bus, TASKS, 3), "three tasks waiting")
    assert (await bus.state(TASKS)).consumers == 0
    assert (await bus.state(REWARDS)).consumers == 1


async def test_the_state_of_an_unknown_queue_is_an_error_and_harms_nothing(bus: Bus) -> None:
    handler = Recorder()
    await bus.consume(TASKS, handler, prefetch=1)

    with pytest.raises(BusError, match="nonesuch"):
        await bus.state("nonesuch")

    await put(bus, TASKS, b"t")
    await handler.until(1)
    assert bus.trouble() is None


async def test_responses_are_copied_to_the_queue_that_keeps_them(bus: Bus) -> None:
    scored, kept = Recorder(), Recorder()
    await bus.consume(RESPONSES, scored, prefetch=1)
    await bus.consume(KEPT_RESPONSES, kept, prefetch=1)

    await put(bus, RESPONSES, b"answer")

    await scored.until(1)
    await kept.until(1)
    assert scored.bodies == kept.bodies == [b"answer"]


async def test_stop_lets_running_handlers_finish_and_publish(bus: Bus) -> None:
    async def work(delivery: Delivery) -> None:
        await asyncio.sleep(0.2)  # real time: it is at work when it is told to stop
        await put(bus, REWARDS, delivery.body)

    handler = Recorder(work)
    await bus.consume(TASKS, handler, prefetch=8)
    for number in range(8):
        await put(bus, TASKS, b"%d" % number)
    await handler.until(8)

    assert await bus.stop(10)

    await bus.start()
    await until(lambda: _holds(bus, REWARDS, 8), "eight rewards")
    assert await empty(bus, TASKS)


async def test_what_does_not_finish_in_time_is_handed_back(bus: Bus) -> None:
    never = asyncio.Event()

    async def hang(delivery: Delivery) -> None:
        if delivery.body == b"slow":
            await never.wait()

    handler = Recorder(hang)
    await bus.consume(TASKS, handler, prefetch=4)
    await put(bus, TASKS, b"quick")
    await put(bus, TASKS, b"slow")
    await handler.until(2)

    assert not await bus.stop(0.1)

    await bus.start()
    again = Recorder()
    await bus.consume(TASKS, again, prefetch=4)
    (delivery,) = await again.until(1)
    assert (delivery.body, delivery.redelivered, delivery.attempt) == (b"slow", True, 0)


async def test_a_handler_that_waits_for_the_broker_does_not_hold_up_the_stop(bus: Bus) -> None:
    async def never_well(_delivery: Delivery) -> None:
        raise BusError("broker away")

    handler = Recorder(never_well)
    await bus.consume(TASKS, handler, prefetch=1)
    await put(bus, TASKS, b"t")
    await handler.until(1)

    before = asyncio.get_running_loop().time()
    stopped_whole = await bus.stop(30)
    assert not stopped_whole
    assert asyncio.get_running_loop().time() - before < 15

    await bus.start()
    again = Recorder()
    await bus.consume(TASKS, again, prefetch=1)
    (delivery,) = await again.until(1)
    assert delivery.redelivered


async def test_the_trace_of_a_message_goes_on_with_what_its_handler_publishes(bus: Bus) -> None:
    async def pass_on(delivery: Delivery) -> None:
        assert trace_parent.get() == delivery.headers.get(TRACE_HEADER, trace_parent.get())
        await put(bus, REWARDS, delivery.body)

    rewards = Recorder()
    await bus.consume(TASKS, Recorder(pass_on), prefetch=4)
    await bus.consume(REWARDS, rewards, prefetch=4)
    await bus.publish(TASKS, b"traced", type="task.v1", message_id="1", headers={TRACE_HEADER: TRACE})
    await bus.publish(TASKS, b"untraced", type="task.v1", message_id="2")

    traces = {delivery.body: delivery.headers[TRACE_HEADER] for delivery in await rewards.until(2)}
    assert traces[b"traced"] == TRACE
    assert len(traces[b"untraced"]) == 55
    assert traces[b"untraced"] != TRACE


async def test_of_two_consumers_of_a_single_active_queue_one_stands_by(bus: Bus) -> None:
    one, other = Recorder(), Recorder()
    for consumer in (one, other):
        await bus.consume(TASKS, consumer, prefetch=1)  # with more it widens: subscribes anew, behind the other one

    for number in range(20):
        await put(bus, TASKS, b"%d" % number)

    await until(lambda: len(one.got) + len(other.got) == 20, "all twenty")
    assert 0 in (len(one.got), len(other.got))


async def test_consumers_share_an_ordinary_queue(bus: Bus) -> None:
    gate = asyncio.Event()

    async def hold(_delivery: Delivery) -> None:
        await gate.wait()

    one, other = Recorder(hold), Recorder(hold)
    await bus.consume(RESPONSES, one, prefetch=1)
    await bus.consume(RESPONSES, other, prefetch=1)
    await put(bus, RESPONSES, b"1")
    await put(bus, RESPONSES, b"2")

    await until(lambda: bool(one.got) and bool(other.got), "one delivery each")
    gate.set()


async def test_trouble_says_why_nothing_works_before_the_start_and_after_the_stop(bus: Bus) -> None:
    assert bus.trouble() is None and bus.delivery_trouble(TASKS) is None
    await bus.stop(0)
    assert "the bus is" in (bus.trouble() or "")
    assert bus.delivery_trouble(TASKS) == bus.trouble()
    with pytest.raises(BusError, match="the bus is"):
        await put(bus, TASKS, b"t")
    with pytest.raises(BusError, match="the bus is"):
        await bus.consume(TASKS, Recorder(), prefetch=1)


async def test_a_queue_of_no_topology_cannot_be_consumed(bus: Bus) -> None:
    with pytest.raises(KeyError, match="nonesuch"):
        await bus.consume("nonesuch", Recorder(), prefetch=1)


async def test_every_listener_gets_its_own_copy_of_a_broadcast_and_nobody_listening_is_no_fault(bus: Bus) -> None:
    one, other, stranger = [], [], []
    await bus.broadcast("events.small", b"nobody hears", type="adapter_event.v1", message_id="0")
    await bus.listen("events.small", one.append)
    await bus.listen("events.small", other.append)
    await bus.listen("events.other", stranger.append)

    await bus.broadcast("events.small", b"heard", type="adapter_event.v1", message_id="1")

    await until(lambda: bool(one) and bool(other), "a copy each")
    assert [(delivery.queue, delivery.body, delivery.type) for delivery in one + other] == [
        ("events.small", b"heard", "adapter_event.v1")
    ] * 2
    assert stranger == []
    assert (await bus.state(UNROUTABLE)).messages == 0


async def test_who_listens_to_rewards_gets_copies_and_takes_none_away(bus: Bus) -> None:
    heard: list[Delivery] = []
    rewards = Recorder()
    await bus.listen(REWARDS, heard.append)
    await bus.consume(REWARDS, rewards, prefetch=1)

    await put(bus, REWARDS, b"a reward")

    await rewards.until(1)
    await until(lambda: [delivery.body for delivery in heard] == [b"a reward"], "the copy")


async def test_a_listener_that_fails_goes_on_hearing(bus: Bus) -> None:
    heard: list[bytes] = []

    def hear(delivery: Delivery) -> None:
        heard.append(delivery.body)
        raise ValueError("not what I wanted to hear")

    await bus.listen("events.small", hear)
    for word in (b"one", b"two"):
        await bus.broadcast("events.small", word, type="", message_id="m")

    await until(lambda: heard == [b"one", b"two"], "both")


async def test_work_in_hand_of_which_none_is_settled_is_a_trouble_until_one_is(bus: Bus) -> None:
    gate, advanced = asyncio.Event(), [NEVER]

    async def hold(_delivery: Delivery) -> None:
        await gate.wait()

    await bus.consume(TASKS, Recorder(hold), prefetch=1, stalled_after_s=0.2, advanced_at=lambda: advanced[-1])
    await put(bus, TASKS, b"t")

    await until(lambda: bus.trouble() is not None, "the trouble")
    assert bus.trouble() is not None and "no progress: 1 in hand" in (bus.trouble() or "")
    assert bus.stall_reason() == bus.trouble()
    assert bus.delivery_trouble(TASKS) is None
    advanced.append(time.monotonic() + 60)
    assert bus.stall_reason() is None and bus.trouble() is None
    advanced.pop()
    gate.set()
    await until(lambda: bus.trouble() is None, "the end of it")


async def test_a_stray_cancellation_of_what_a_handler_awaits_ends_no_consumer(bus: Bus) -> None:
    async def cancelled_elsewhere(delivery: Delivery) -> None:
        if delivery.body == b"bad" and not delivery.attempt:
            raise asyncio.CancelledError

    handler = Recorder(cancelled_elsewhere)
    await bus.consume(TASKS, handler, prefetch=4)
    for body in (b"bad", b"good"):
        await put(bus, TASKS, body)
    await handler.until(3)
    assert bus.trouble() is None
