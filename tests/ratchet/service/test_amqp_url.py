"""An AMQP URL that can't be read is refused at the start, and nothing of the password in it is told."""

from __future__ import annotations

import traceback

import pytest

from ratchet.bus.amqp.short_connection import parameters
from ratchet.service.errors import SettingsError
from ratchet.service.settings import FleetSettings, amqp_parameters

PASSWORD = "hunter/2secret"
UNREADABLE = [
    f"amqp://guest:{PASSWORD}@broker:5672/",
    f"amqp://guest:{PASSWORD.replace('/', '#')}@broker:5672/",
    f"amqp://guest:{PASSWORD.replace('/', '?')}@broker:5672/",
    f"http://guest:{PASSWORD.replace('/', '')}@broker:5672/",
    f"guest:{PASSWORD}@broker",
    f"amqp://guest:{PASSWORD.replace('/', '')}@broker:5672/?heartbeat=often",
    "",
]


@pytest.mark.parametrize("url", UNREADABLE)
def test_what_is_no_amqp_url_is_refused_by_all_who_read_one_without_repeating_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATCHET_AMQP_URL", url)

    for read in (FleetSettings.read, lambda: amqp_parameters(url), lambda: parameters(url)):
        with pytest.raises(SettingsError, match=r"RATCHET_AMQP_URL is no AMQP URL: write amqp://user:pass") as refused:
            read()
        told = "".join(traceback.format_exception_only(refused.value))
        assert "hunter" not in told and "2secret" not in told


def test_a_password_that_is_percent_encoded_is_taken_whole() -> None:
    given = amqp_parameters("amqps://guest:hunter%2F2%40%23secret@broker/a%2Fb")

    assert (given.credentials.password, given.host, given.virtual_host) == ("hunter/2@#secret", "broker", "a/b")
