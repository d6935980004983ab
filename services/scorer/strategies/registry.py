"""Builds the strategy a specification names, through the entry points group `ratchet.scorers`."""

from __future__ import annotations

from importlib.metadata import entry_points

from ratchet.service.errors import ScorerError
from services.scorer.settings import ScorerSettings
from services.scorer.spec import Part, parse_spec
from services.scorer.strategies.strategy import Strategy, StrategyClass
from services.scorer.strategies.weighted import Weighted

GROUP = "ratchet.scorers"


def build_strategy(settings: ScorerSettings) -> Strategy:
    """Raises ScorerError if the specification can't be read, or names a strategy that is not there or not usable."""
    spec = parse_spec(settings.scorer)
    parts = [_build(part, settings) for part in spec.parts]
    return parts[0] if len(parts) == 1 else Weighted(spec, parts)


def _build(part: Part, settings: ScorerSettings) -> Strategy:
    found = entry_points(group=GROUP)
    if part.name not in found.names:
        raise ScorerError(f"there is no scorer {part.name!r}; installed are {', '.join(sorted(found.names))}")
    try:
        strategy: StrategyClass = found[part.name].load()
    except (ImportError, AttributeError) as error:
        raise ScorerError(
            f"scorer {part.name!r} can't be loaded ({error}): pip install 'ratchet[scorer,likelihood]'"
        ) from error
    return strategy.build(part.argument, settings)
