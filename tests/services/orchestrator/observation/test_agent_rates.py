"""The figures of agents over the last minute: told where they change, and once more when they are gone."""

from __future__ import annotations

from services.orchestrator.observation.served_quality import AgentRates, Ended


def test_figures_are_those_of_the_last_minute_and_told_once() -> None:
    rates = AgentRates()
    for at, name, is_ok, score in ((0.0, None, True, 1.0), (30.0, "bot", True, 0.5), (31.0, "bot", False, None)):
        rates.note(Ended(at, ("small", name), is_ok, score, 2.0))

    told = {one.registered_agent: one for one in rates.news(40.0)}
    assert (told[None].ended, told[None].mean_score) == (1, 1.0)
    assert (told["bot"].ended, told["bot"].without_answer, told["bot"].mean_score) == (2, 1, 0.5)
    assert rates.news(41.0) == []

    (gone,) = rates.news(61.0)
    assert (gone.registered_agent, gone.ended, gone.mean_score) == (None, 0, None)
    assert rates.news(62.0) == []
