#!/bin/sh
# Debian packages the fleet needs on one machine: RabbitMQ, Python's venv, and bubblewrap for code that nobody vouches for.
# Does nothing where they are already there.
# With `compiler` also a C compiler, which the fault tests alone need (bench/faults/preload.c).
# The broker's system service is not started: the fleet runs a private node of its own.
set -eu

missing=
ls /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server >/dev/null 2>&1 || [ -n "${RATCHET_AMQP_URL:-}" ] ||
    missing=rabbitmq-server
"${PYTHON:-python3}" -c 'import ensurepip' >/dev/null 2>&1 || missing="$missing python3-venv"
command -v bwrap >/dev/null || missing="$missing bubblewrap"
ls /usr/lib/*/libseccomp.so.2 >/dev/null 2>&1 || missing="$missing libseccomp2"
[ "${1:-}" != compiler ] || command -v cc >/dev/null || missing="$missing gcc libc6-dev"

before() { [ ! -d /run/systemd/system ] || $sudo systemctl mask --quiet rabbitmq-server; }
after() {
    [ -d /run/systemd/system ] || return 0
    $sudo systemctl unmask --quiet rabbitmq-server
    $sudo systemctl disable --quiet rabbitmq-server 2>/dev/null || true
}
before=before after=after otherwise="Or set RATCHET_AMQP_URL to a broker you have."
. "$(dirname "$0")/apt-install.sh"
