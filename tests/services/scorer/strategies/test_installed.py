from __future__ import annotations

import pytest

from ratchet.service.errors import ScorerError
from services.scorer.settings import ScorerSettings
from services.scorer.strategies.installed import build_strategy


def settings(spec: str) -> ScorerSettings:
    return ScorerSettings(scorer=spec, scorer_judge_model="big")


@pytest.mark.parametrize(
    ("spec", "id"),
    [
        ("verifier", "verifier:normalised"),
        ("verifier:exact", "verifier:exact"),
        ("verifier:numeric", "verifier:numeric"),
        ("verifier:regex", "verifier:regex"),
        ("verifier:graded", "verifier:graded"),
        ("judge", "judge:absolute"),
        ("judge:relative", "judge:relative"),
        ("python:tests.services.scorer.functions:length", "python:tests.services.scorer.functions:length"),
        ("7*verifier:exact + 3*judge", "0.7*verifier:exact + 0.3*judge"),
        ("verifier:exact and judge", "verifier:exact and judge"),
        (
            "verifier:exact else 7*judge:absolute + 3*judge:relative",
            "verifier:exact else 0.7*judge:absolute + 0.3*judge:relative",
        ),
    ],
)
def test_every_strategy_is_found_by_name(spec: str, id: str) -> None:
    assert build_strategy(settings(spec)).identity.id == id


def test_the_likelihood_strategy_is_built_without_loading_its_model() -> None:
    from services.scorer.strategies.likelihood import Likelihood  # imports torch: not in `pytest --quick`

    strategy = build_strategy(settings("likelihood"))

    assert isinstance(strategy, Likelihood)
    assert strategy.trouble() == "the likelihood model is not loaded yet"


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (
            "oracle",
            "there is no scorer 'oracle'; installed are efficiency, judge, likelihood, python, security, style, tests, "
            "time, tokens, verifier",
        ),
        ("verifier:vibes", "no verifier 'vibes'"),
        ("judge:harsh", "no judge 'harsh'"),
        ("", "can't be read"),
    ],
)
def test_what_can_not_be_built_is_a_scorer_error(spec: str, fault: str) -> None:
    with pytest.raises(ScorerError, match=fault):
        build_strategy(settings(spec))


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"scorer_judge_model": ""}, "RATCHET_SCORER_JUDGE_MODEL"),
        ({"scorer_judge_url": "localhost:8000"}, "no http:// or https:// URL"),
        ({"scorer_judge_rubric": "no/such/file.md"}, "can't be read"),
    ],
)
def test_a_judge_that_lacks_a_setting_says_which(given: dict[str, str], fault: str) -> None:
    with pytest.raises(ScorerError, match=fault):
        build_strategy(ScorerSettings(scorer="judge", **({"scorer_judge_model": "big"} | given)))  # type: ignore[arg-type]
