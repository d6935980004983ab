"""The expressions that panels share."""

from __future__ import annotations


def rate(metric: str, *by: str, of: str = "") -> str:
    """PromQL: how much a counter rises a second, summed over all labels but those of `by`. `of`: matchers of labels."""
    summed = f"sum by ({', '.join(by)}) " if by else "sum"
    return f"{summed}(rate({metric}{f'{{{of}}}' if of else ''}[$__rate_interval]))"


def quantile(share: float, histogram: str, *by: str, of: str = "") -> str:
    """PromQL: what a share (0 to 1) of the observations stay below."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', 'le', *by, of=of)})"


def mean(histogram: str, *by: str, of: str = "") -> str:
    return " / ".join(rate(f"{histogram}_{part}", *by, of=of) for part in ("sum", "count"))
