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
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "This machine has no apt-get. Install yourself: $missing. Or set RATCHET_AMQP_URL to a broker you have." >&2
    exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || { echo "Type as root: apt-get install -y $missing" >&2; exit 1; }
    sudo=sudo
fi

has_systemd() { [ -d /run/systemd/system ]; }
echo "installing:$missing" >&2
if has_systemd; then $sudo systemctl mask --quiet rabbitmq-server; fi
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
if has_systemd; then
    $sudo systemctl unmask --quiet rabbitmq-server
    $sudo systemctl disable --quiet rabbitmq-server 2>/dev/null || true
fi
