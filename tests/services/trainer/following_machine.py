"""Is machine 1 of a run over two, without a broker: `python -m tests.services.trainer.following_machine`."""

from __future__ import annotations

import asyncio
import signal

from services.trainer.follower import Follower
from services.trainer.settings import TrainerSettings


async def main() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    follower = Follower(TrainerSettings.read(), poll_every_s=0.1)
    await follower.start()
    await stopped.wait()
    assert follower.trouble() is None
    await follower.stop()


if __name__ == "__main__":
    asyncio.run(main())
