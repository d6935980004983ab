"""Runners, and the token they ask agents with: long-lived pods that KEDA scales by the tasks of agents with programs.

A runner's pod is where code of strangers runs. So it has the broker's password of a user that takes work and answers,
a token that agents and the scorer alone take, and nothing else of the fleet's; it reaches these and the broker.

What programs require is installed before, by a job: packages run code of strangers too, and need the world, so it has
no secret, and no other pod can write where it writes.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from infra import probes
from infra.api_keys import ApiKeys
from infra.broker import Accounts
from infra.fleet import (
    CLAIM_SHARE,
    PROGRAMS_MOUNT,
    WORKSPACES_AT,
    Access,
    agent_ids,
    around_sandboxes,
    fleet_process,
    image_name,
    manager_url,
    program_files,
    program_settings,
    service_program,
    work_queues,
)
from infra.foundation import ENVIRONMENTS, ROLLOUTS, RUNNER_TOKEN
from infra.network import AGENT_API, SCORER_API
from infra.process import Backlog, Claim, Files, Kind, Mount, Process, Program, Role, Scale, Scratch, SiteClaim
from infra.settings import Resources, Runner, StackSettings, gigabytes
from ratchet.bus.topology import work_queue

NAME, TOKENS, INSTALLER = "runner", "runner-token", "programs"
ROLLOUTS_AT, TOKEN_AT, FOLDER_AT = "/data/rollouts", "/data/runner-token", "/programs"
ENVIRONMENTS_AT = "/data/environments"
TOKEN = f"{TOKEN_AT}/token"
SIGNING_KEYS_AT = "/etc/ratchet/signing-keys"
RENEWED_EVERY_S, LIVES = 3600, "24h"
"""A token that is renewed each hour and lives a day outlasts a night in which nobody can issue one."""
STALE_MINUTES = 180
ISSUE = f"""
umask 077; trap 'exit 0' TERM; again=5
while :; do
  if ratchet token issue --keys {SIGNING_KEYS_AT} --role runner --name runner --ttl {LIVES} > {TOKEN}.new \\
    && mv {TOKEN}.new {TOKEN}; then pause={RENEWED_EVERY_S}; again=5
  else pause=$again; again=$((again < 300 ? again * 2 : 300)); fi
  sleep $pause & wait $!
done
"""
"""Renews a token; after a failure it tries again in 5 s, then ever later, at most in ten minutes."""


def runner(wanted: Runner, settings: StackSettings, accounts: Accounts, keys: ApiKeys) -> Process:
    """Make the runner. Its rollouts lie on a claim: a Work that goes to another replica is finished, not run again."""
    main = service_program(NAME, settings, wanted.resources, models=Access.READ, downloads=False)
    main = replace(
        main,
        image=_image(wanted, settings),
        mounts=(
            *main.mounts,
            *_program_mounts(wanted),
            *((Mount(Claim(ENVIRONMENTS), ENVIRONMENTS_AT, read_only=True),) if wanted.programs else ()),
            Mount(Claim(ROLLOUTS), ROLLOUTS_AT),
            Mount(Claim(RUNNER_TOKEN), TOKEN_AT, read_only=True),
            Mount(Scratch("workspaces", wanted.cache), WORKSPACES_AT),
        ),
    )
    queues = tuple(queue for agent in wanted.agents for queue in work_queues(agent))
    asked = wanted.agents
    if settings.manager:
        asked = tuple(agent.id for agent in settings.agents)
        queues += tuple(work_queue(agent, registered=True) for agent in asked)
    process = fleet_process(
        NAME,
        Role.RUNNER,
        main,
        settings,
        accounts,
        keys,
        around_sandboxes(settings)
        | program_settings(settings)
        | manager_url(settings)
        | (_where_installed(wanted) if wanted.programs else {})
        | {
            "RATCHET_RUNNER_AGENTS": ",".join(f"{one}=http://agent-{one}:{AGENT_API}" for one in asked),
            "RATCHET_RUNNER_API_TOKEN_FILE": TOKEN,
            "RATCHET_RUNNER_DIR": ROLLOUTS_AT,
            "RATCHET_RUNNER_KEEP_GB": f"{gigabytes(settings.storage.rollouts) * CLAIM_SHARE:g}",
            "RATCHET_SANDBOX_RUNS_AT_ONCE": str(wanted.runs_at_once),
        }
        | ({} if settings.external_scorer else {"RATCHET_RUNNER_SCORER_URL": f"http://scorer:{SCORER_API}"}),
        scale=Scale(
            wanted.min_replicas,
            wanted.max_replicas,
            Backlog(queues, wanted.tasks_per_replica, settings.queue_namespace),
            by_cpu=True,
        ),
        drain_s=wanted.drain_s,
    )
    return replace(process, files=program_files(settings), sandboxes=True)


def installer(wanted: Runner, settings: StackSettings) -> Process:
    """Make the installer. Changed programs are installed into a folder of their own, so the old ones still run."""
    return Process(
        name=INSTALLER,
        role=Role.INSTALLER,
        kind=Kind.ONCE,
        main=Program(
            name="installer",
            image=_image(wanted, settings),
            resources=Resources(cpu="500m", memory="1Gi"),
            command=("python", "-m", "ratchet.programs.installing"),
            mounts=(*_program_mounts(wanted), Mount(Claim(ENVIRONMENTS), ENVIRONMENTS_AT)),
        ),
        environment=program_settings(settings) | _where_installed(wanted) | {"RATCHET_AGENTS": agent_ids(settings)},
        files=program_files(settings),
        drain_s=1,
        scale=Scale(1, 1),
        metrics=None,
        deadline_s=1800,
    )


def _image(wanted: Runner, settings: StackSettings) -> str:
    return wanted.image or image_name(NAME, settings)


def _program_mounts(wanted: Runner) -> tuple[Mount, ...]:
    """The file of the programs, if there is one, and the site's folder that it names."""
    files = (PROGRAMS_MOUNT,) if wanted.programs else ()
    folder = (Mount(SiteClaim(wanted.folder), FOLDER_AT, read_only=True),) if wanted.folder else ()
    return (*files, *folder)


def _where_installed(wanted: Runner) -> dict[str, str]:
    version = hashlib.sha256(f"{wanted.image}\n{wanted.programs}".encode()).hexdigest()[:12]
    return {"RATCHET_PROGRAM_ENVIRONMENTS": f"{ENVIRONMENTS_AT}/{version}"}


def runner_token(settings: StackSettings, keys: ApiKeys) -> Process:
    """The one pod with the key that tokens are signed with. It has no network, and writes one file."""
    fresh = probes.command("sh", "-c", f'test -n "$(find {TOKEN} -mmin -{STALE_MINUTES})"', every_s=30, timeout_s=5)
    return Process(
        name=TOKENS,
        role=Role.TOKENS,
        main=Program(
            name="issuer",
            image=image_name("cli", settings),
            resources=Resources(cpu="10m", memory="128Mi"),
            command=("sh", "-c", ISSUE),
            mounts=(Mount(Files(secret=True), SIGNING_KEYS_AT, read_only=True), Mount(Claim(RUNNER_TOKEN), TOKEN_AT)),
            startup=fresh,
            liveness=fresh,
            readiness=fresh,
        ),
        secret_files={"signing-key.json": keys.signing_key, **keys.files},
        drain_s=1,
        scale=Scale(1, 1),
        metrics=None,
    )
