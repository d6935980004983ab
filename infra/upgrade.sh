#!/bin/sh
# Brings a running fleet on Docker Compose to the images and settings that are here now, without a pause:  sh infra/upgrade.sh
#
# `docker compose up` would stop all that changed at once. This replaces one container after the other and waits until its
# successor is well: the orchestrator that does not lead first, then the one that does. What did not change stays, so a run that
# was cut off is simply started again. Build or pull the images before. Compose's own variables count here too (COMPOSE_PROFILES,
# COMPOSE_PROJECT_NAME). Left out: the broker, which changes only by a person's `docker compose up -d rabbitmq`.
set -eu
cd "$(dirname "$0")/.."
WELL_S=${WELL_S:-2400}  # seconds a successor may take until it is well: a big model is loaded
LEADS_S=120
JOBS="settings settings-agent settings-scorer credentials keys topology models"

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$*"
    exit 1
}

# Dependencies are named to Compose too, never --no-deps: some versions count them into what they compare a container by.
start() { docker compose up -d --no-build --no-recreate --wait --wait-timeout "$WELL_S" "$@" >/dev/null 2>&1; }

is_ready() {  # whether a service's container can do its work: of the orchestrators, whether it leads
    docker compose exec -T "$1" python -m ratchet.runtime.container_health readyz >/dev/null 2>&1
}

replace() {  # each container of a service that is not what it would be made of now, one at a time
    for container in $(docker compose ps --format '{{.Name}}' "$1"); do
        case $current in *" $container "*) continue ;; esac
        say "$container"
        docker stop "$container" >/dev/null
        docker rm "$container" >/dev/null
        start "$1" || fail "$1: the successor is not well, and the rest was left as it is: docker compose logs $1"
    done
}

await_leader() {
    waited=0
    until is_ready orchestrator || is_ready orchestrator-standby; do
        [ "$waited" -lt "$LEADS_S" ] || fail "no orchestrator leads: docker compose logs orchestrator orchestrator-standby"
        waited=$((waited + 1))
        sleep 1
    done
}

running=$(docker compose ps --services --status running)
case " $(echo $running) " in
    *" rabbitmq "*) ;;
    *) fail "no fleet runs here; start it: docker compose up -d --build --wait" ;;
esac
for job in settings settings-agent settings-scorer; do  # before anything is touched
    docker compose run --rm --no-deps -T "$job" >&2
done

case " $(echo $running) " in *" runner "*) JOBS="$JOBS installer" ;; esac
# The jobs are removed first: Compose stops what depends on a container that it makes anew.
docker compose rm --force --stop $JOBS >/dev/null 2>&1
docker compose up -d --no-build --no-recreate topology >/dev/null 2>&1 || fail "a job failed: docker compose ps -a"
[ "$(docker wait "$(docker compose ps --all --quiet topology)")" = 0 ] || fail "a job failed: docker compose logs topology"
# Users that are new, and passwords that changed; who is connected stays so.
docker compose exec -T rabbitmq rabbitmqctl -q import_definitions /etc/rabbitmq/credentials/definitions.json

current=" $(docker compose --ansi never --dry-run create --no-build 2>&1 |
    sed -n 's/.*Container \([^ ]*\)  *Running *$/\1/p' | tr '\n' ' ') "

if is_ready orchestrator-standby; then
    replace orchestrator
    replace orchestrator-standby
else
    replace orchestrator-standby
    replace orchestrator
fi
await_leader
for service in $running; do
    case $service in
        rabbitmq | orchestrator | orchestrator-standby) ;;
        *) replace "$service" ;;
    esac
done
start || fail "not all is well: docker compose ps"  # what is new
case $current in
    *" $(docker compose ps --format '{{.Name}}' rabbitmq) "*) ;;
    *) say "The broker has other settings now and was left alone; to replace it: docker compose up -d rabbitmq" ;;
esac
say "all containers are current"
