"""A name for this process, for messages that say who speaks."""

from __future__ import annotations

import os
import socket
import uuid


def process_name() -> str:
    """Unique: host, process id, and something random for what starts anew under the same id."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
