"""What a client of plain HTTP is made with: loading the authorities' certificates takes 40 ms a client."""

from __future__ import annotations

import ssl

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
