"""The live test of one role of the team: vectors that differ in that role only, judged by the team's outcome.

The rule is the product's, in its vectorised twin (bench.decision, which proves that the two are equal).
"""

from __future__ import annotations

import numpy as np

from bench.decision.simulate import play, simulate
from bench.decision.streams import Scenario, Streams
from bench.decision.twin import PROMOTE, Twin
from bench.team.world import Vector, World

UNITS = 500
WRONG_BAR = 0.05


def is_promoted(world: World, present: Vector, candidate: Vector, number: int) -> bool:
    """Both answer the same stream of tasks; of each unit the arm that was drawn counts."""
    tasks = world.tasks(UNITS, 500 + number)
    before, after = (
        np.array([[group[0].worth() for group in world.rollouts(vector, tasks, 1, 500 + number)]])
        for vector in (present, candidate)
    )
    one, nothing = np.ones((1, UNITS)), np.zeros((1, UNITS))
    stream = Streams(
        draws=np.random.default_rng([world.seed, number]).random((1, UNITS)),
        stratum=np.zeros((1, UNITS), dtype=np.int64),
        score=(before, after),
        success=(one, one),
        scored=(one, one),
        length=(one, one),
        latency=(one, one),
        refused=(nothing, nothing),
        audit=(nothing, nothing),
        is_audited=np.zeros((1, UNITS), dtype=bool),
        tasks=one,
        task_squares=(before**2, after**2),
    )
    twin = play(Scenario("a role", levels=(0.5,), ramp=(0.5,), units=UNITS), stream, rivals=False)[0]
    assert isinstance(twin, Twin)
    return bool(twin.verdict[0] == PROMOTE)


def false_promotions(fleets: int) -> dict[str, float]:
    """Share of the experiments of each role in which a candidate was promoted that is no better. The second role is
    tried beside the first one's new version, with evidence of its own."""
    worlds = (Scenario("writer, A/A", units=1000, noise=0.25), Scenario("mender, A/A", units=1000, noise=0.35))
    return {
        world.name: simulate(world, fleets, seed, rivals=False)["ratchet"].promoted
        for seed, world in enumerate(worlds, 1)
    }
