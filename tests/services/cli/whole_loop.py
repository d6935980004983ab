"""A whole loop with real logs and a real ledger, made in seconds: a better adapter, a harmful one, a restart, more."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from tests.services.orchestrator.learning_house import learning_house

QUALITY = {"v1.0.0": 0.4, "v1.0.1": 0.62, "v1.0.2": 0.1, "v1.0.3": 0.75}
QUICK = {
    "experiment_min_units_per_arm": 10,
    "golden_from_traffic": False,
    "watch_share": 0.0,
}
"""Without a golden set the harmful adapter reaches live traffic, which finds it."""


@dataclass(frozen=True)
class WholeLoop:
    """`logs` and `adapters` as an orchestrator left them: v1.0.3 is still being tried."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"RATCHET_LOGS_DIR": str(self.folder), "RATCHET_ADAPTERS_DIR": str(self.folder / "adapters")}


def whole_loop(folder: Path) -> WholeLoop:
    """Blocks for some seconds: call it from no event loop."""
    asyncio.run(_lived(folder))
    return WholeLoop(folder)


async def _lived(folder: Path) -> None:
    async with learning_house(folder, QUALITY, **QUICK) as house:
        await house.traffic(stop_when=lambda: house.submitted >= 40)
        better = await house.trained(seed=1)
        await house.reach(better, "canary")
        await house.traffic(stop_when=lambda: house.submitted >= 100)
    async with learning_house(folder, QUALITY, **QUICK) as house:
        await house.traffic(stop_when=lambda: house.adapters.primary == better)
        harmful = await house.trained(seed=2, parent=better)
        await house.reach(harmful, "canary")
        await house.traffic(stop_when=lambda: house.state(harmful) == "rolled_back")
        newest = await house.trained(seed=3, parent=better)
        await house.reach(newest, "canary")
        so_far = house.submitted
        await house.traffic(stop_when=lambda: house.submitted >= so_far + 60)
