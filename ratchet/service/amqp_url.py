"""An AMQP URL becomes connection parameters, or a sentence that repeats nothing of it: it holds a password."""

from __future__ import annotations

from urllib.parse import urlsplit

from pika import URLParameters

from ratchet.service.errors import SettingsError

SCHEMES = ("amqp", "amqps")


def amqp_parameters(url: str) -> URLParameters:
    """Raises SettingsError for what is no AMQP URL; what pika says of it may quote the password, and is left out."""
    try:
        if urlsplit(url).scheme in SCHEMES:
            return URLParameters(url)
    except (ValueError, TypeError, AttributeError):
        pass
    raise SettingsError(
        "RATCHET_AMQP_URL is no AMQP URL: write amqp://user:password@host:5672/vhost, and in the user and the password "
        "%2F for /, %3F for ?, %23 for #, %3A for :, %40 for @, %25 for %"
    )
