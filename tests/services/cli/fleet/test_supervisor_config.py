"""The configuration is read back as supervisord reads it."""

from __future__ import annotations

import shlex
from configparser import RawConfigParser
from pathlib import Path

from supervisor.datatypes import dict_of_key_value_pairs

from services.cli.fleet.folder import FleetFolder
from services.cli.fleet.supervisord import Program, render

BROKER = Program("broker", ("/opt/rabbit mq/server",), {"HOME": "/a folder, with a comma", "ARGS": "-k {127,0,0,1}"})
AGENT = Program("agent-small", ("python", "-m", "services.agent"), {"RATCHET_AGENT_ID": "small"}, 8710, stop_wait_s=75)
SCORER = Program("scorer", ("python", "-m", "services.scorer"), http_port=8750)


def read(broker: Program | None = BROKER, root: str = "/fleet") -> RawConfigParser:
    parser = RawConfigParser(inline_comment_prefixes=(";", "#"), strict=False)
    parser.read_string(render(FleetFolder(Path(root)), Path("/work"), broker, (AGENT, SCORER)))
    return parser


def test_the_broker_starts_first_and_the_services_form_one_group_that_stops_before_it() -> None:
    config = read()

    assert config.getint("program:broker", "priority") < config.getint("group:services", "priority")
    assert config["group:services"]["programs"] == "agent-small,scorer"


def test_without_a_broker_of_ours_none_is_started() -> None:
    assert "program:broker" not in read(broker=None)


def test_commands_and_environments_survive_blanks_and_commas() -> None:
    broker = read()["program:broker"]

    assert shlex.split(broker["command"]) == list(BROKER.command)
    assert dict_of_key_value_pairs(broker["environment"]) == dict(BROKER.environment)


def test_a_service_gets_its_grace_time_before_it_is_killed() -> None:
    agent = read()["program:agent-small"]

    assert (agent["stopsignal"], agent["stopwaitsecs"], agent["autorestart"]) == ("TERM", "75", "true")


def test_a_percent_sign_in_a_path_is_not_expanded() -> None:
    assert read(root="/100%")["supervisord"]["pidfile"] == "/100%%/supervisord.pid"
