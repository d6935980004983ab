"""A cascade in sentences, for the terminal. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def cascade_lines(view: Mapping[str, Any]) -> list[str]:
    """`view`: a CascadeView as JSON."""
    small, big, evidence = view["agent_id"], view["big"], view["evidence"]
    answered = view["answered_by_small"] + view["answered_by_big"]
    share = view["share_answered"]
    frozen = "; frozen" if view["frozen"] else ""
    lines = [
        f"{small}: may answer {view['share']:.0%} of the tasks in place of {big}{frozen}",
        f"  answered: {view['answered_by_small']:,} of {answered:,}"
        + (f" ({share:.0%})" if share is not None else "")
        + (f", {view['in_place']:,} only because {big} did not" if view["in_place"] else ""),
        f"  cost: {small} {view['small_cost']:,.4g}, {big} {view['big_cost']:,.4g}"
        + (
            f"; {big} alone would have cost {view['big_alone']:,.4g}: {view['saved']:,.4g} saved"
            if view["big_alone"] is not None
            else ""
        ),
    ]
    if view["daily_cap"] is not None:
        lines.append(f"  today: {view['spent_today']:,.4g} of {view['daily_cap']:,.4g}")
    lines.append(
        f"  evidence: {evidence['units']:,} units, {evidence['audited']:,} audited, mean difference "
        f"{evidence['difference']:+.4f}; "
        + (
            f"for {view['next_share']:.0%} e = {evidence['not_worse']:.3g} of {evidence['raise_at']:.3g}, "
            if view["next_share"] is not None
            else ""
        )
        + f"for harm e = {evidence['worse']:.3g} of {evidence['fall_at']:.3g}"
    )
    return lines
