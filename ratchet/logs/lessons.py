"""Tells whether a logged answer can teach at all, as far as its line alone says. Pure.

The trainer leaves out more, which takes the whole window to know: groups that are equal or not whole, other versions,
scorers and temperatures (services/trainer/data).
"""

from __future__ import annotations

from ratchet.logs.best_answer import NOT_THERE, is_censored
from ratchet.logs.names import is_own
from ratchet.logs.rows import SamplingRow
from schemas.records.interaction import Interaction


def teaches_nothing(line: Interaction) -> str | None:
    """Return why no training learns from it, as a clause; None where one may."""
    sampling = line.sampling
    if line.sample is None:
        return "there is no answer"
    if is_own(line.arm.experiment_id):
        return "it is a task of the fleet's own, golden, an anchor or an evaluation"
    if line.kept_apart:
        return "it is of a tenant that its agent does not learn from"
    if line.status == "cancelled":
        return "its task was cancelled"
    if is_censored(line.select):
        return "of first-passing it depends on the scores which answers were made"
    if line.sample_status in NOT_THERE:
        return "it was lost by a failure of ours" if line.sample_status == "lost" else "it was called off"
    if SamplingRow(sampling.temperature, sampling.top_p, sampling.top_k).filtered:
        return "with temperature 0, top_p or top_k it was not the policy's own choice"
    if not line.sampled_tokens:
        return "there are no tokens of it"
    return None
