"""A private broker for several benches, and a tokenizer for fleets without a model."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demos.toy.byte_tokenizer import byte_tokenizer
from tests.private_broker import PrivateBroker


@contextmanager
def private_broker(*, threads_bound: bool = False) -> Iterator[tuple[str, int]]:
    """A node of this run's own; its URL and process id. `threads_bound`: to its cores, as RabbitMQ ships."""
    with tempfile.TemporaryDirectory(prefix="ratchet-bench-broker-") as folder:
        broker = PrivateBroker.on_free_ports(Path(folder), threads_bound=threads_bound)
        node = broker.start()
        try:
            broker.wait_until_ready(node)
            yield broker.url, node.pid
        finally:
            broker.stop(node)


def save_tokenizer(folder: Path) -> str:
    """Save a tokenizer of bytes there, unless it is there; return the folder as a setting names it."""
    if not folder.exists():
        byte_tokenizer(8192).save_pretrained(folder)
        (folder / "config.json").write_text("{}")
    return str(folder)
