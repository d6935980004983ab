"""A backup of the running fleet by the clock: `ratchet backup` onto a claim of the site's, the newest few kept."""

from __future__ import annotations

from infra.fleet import ADAPTERS_AT, DECISION_KEYS_AT, LOGS_AT, image_name
from infra.foundation import ADAPTERS, DECISION_KEYS, LOGS
from infra.process import Claim, Kind, Mount, Process, Program, Role, Scale, SiteClaim, SiteSecret
from infra.settings import Backups, Resources, StackSettings

BACKUPS_AT, KEY_AT, KEY = "/backups", "/run/backup-key", "key"
DEADLINE_S = 4 * 3600


def backups(wanted: Backups, settings: StackSettings) -> Process:
    """Make backups on a schedule: no network and no user of the broker, only files, under the fleet's locks."""
    encrypted = f"--key-file {KEY_AT}/{KEY} " if wanted.key_secret else ""
    make = (
        "set -e; umask 077; now=$(date -u +%Y%m%dT%H%M%SZ); "
        f"ratchet backup {encrypted}{BACKUPS_AT}/fleet-$now.ratchet; "
        f"ls -1t {BACKUPS_AT}/fleet-*.ratchet | tail -n +{wanted.keep + 1} | xargs -r rm --"
    )
    key = Mount(SiteSecret(wanted.key_secret), KEY_AT, read_only=True) if wanted.key_secret else None
    return Process(
        name="backup",
        role=Role.BACKUP,
        kind=Kind.SCHEDULED,
        schedule=wanted.schedule,
        main=Program(
            name="backup",
            image=image_name("cli", settings),
            resources=Resources(cpu="250m", memory="512Mi"),
            command=("sh", "-c", make),
            mounts=(
                Mount(Claim(LOGS), LOGS_AT),
                Mount(Claim(ADAPTERS), ADAPTERS_AT),
                Mount(Claim(DECISION_KEYS), DECISION_KEYS_AT, read_only=True),
                Mount(SiteClaim(wanted.claim, writable=True), BACKUPS_AT),
                *((key,) if key else ()),
            ),
        ),
        environment={
            "RATCHET_LOGS_DIR": LOGS_AT,
            "RATCHET_ADAPTERS_DIR": ADAPTERS_AT,
            "RATCHET_DECISION_KEYS": DECISION_KEYS_AT,
        },
        drain_s=1,
        scale=Scale(1, 1),
        metrics=None,
        deadline_s=DEADLINE_S,
    )
