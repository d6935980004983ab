"""What may be decided on a cascade."""

from __future__ import annotations

from schemas.records.cascade import CascadeCut, CascadePlanRecord, CascadeState
from schemas.records.decision import Freeze, FreezeCascade, MoveCascade, UnfreezeCascade
from tests.ratchet.adapters.test_registry_moves import ANN, after, refused


def move(cause: str, step: int, attempt: int) -> MoveCascade:
    state = CascadeState(
        big="big",
        small="v1.0.0",
        plan=CascadePlanRecord(),
        step=step,
        attempt=attempt,
        cut=CascadeCut(score=0.5, share_at=0.0),
        positions={},
        draw_id="cascade",
    )
    return MoveCascade(cause=cause, state=state)


BEGUN = move("begin", 0, 1)


def test_the_share_is_raised_by_one_step_and_the_attempt_stays() -> None:
    agent = after(BEGUN, move("raise", 1, 1))
    assert agent.cascade is not None
    assert (agent.cascade.state.step, agent.cascade.decision) == (1, 2)
    assert "by one, not to 3" in refused(agent, move("raise", 3, 1))


def test_no_attempt_comes_again() -> None:
    agent = after(BEGUN, move("raise", 1, 1), move("fall", 0, 2))
    assert "the attempt 2 was made before: the next one is 3" in refused(agent, move("anew", 0, 2))
    assert "was made before" in refused(agent, move("raise", 1, 1))


def test_while_frozen_the_share_falls_and_is_not_raised() -> None:
    agent = after(BEGUN, move("raise", 1, 1), FreezeCascade())
    assert "frozen" in refused(agent, move("raise", 2, 1))
    assert "frozen already" in refused(agent, FreezeCascade())
    assert after(move("fall", 0, 2), start=agent).cascade is not None
    assert after(UnfreezeCascade(), move("raise", 2, 1), start=agent).cascade is not None
    assert "frozen" in refused(after(BEGUN, Freeze()), move("raise", 1, 1))


def test_only_an_operator_sets_it() -> None:
    agent = after(BEGUN)
    assert "an operator alone" in refused(agent, move("set", 4, 2))
    set_by_hand = after(move("set", 4, 2), start=agent, who=ANN).cascade
    assert set_by_hand is not None
    assert set_by_hand.state.step == 4


def test_an_agent_without_a_cascade_has_none_to_move() -> None:
    assert "has no cascade" in refused(after(), move("raise", 1, 1))
    assert "has no cascade" in refused(after(), FreezeCascade())
