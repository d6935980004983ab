#!/bin/sh
# Brings a running fleet on Docker Compose to the images and settings that are here now, without a pause:  sh infra/upgrade.sh
#
# `docker compose up` would stop all that changed at once. This replaces one container after the other and waits until its
# successor is well: the orchestrator that does not lead first, then the one that does. What did not change stays, so a run that
# was cut off is simply started again. Build or pull the images before, as ever. Options of Compose go by its variables
# (COMPOSE_PROFILES, COMPOSE_PROJECT_NAME). Left out: the broker. It changes only by a person's `docker compose up -d rabbitmq`.
set -eu
cd "$(dirname "$0")/.."
WELL_S=${WELL_S:-2400}  # how long a successor may take until it is well: a big model is loaded
JOBS="credentials keys topology models"
UNTOUCHED=rabbitmq

say() { printf '%s\n' "$*" >&2; }

is_ready() {  # whether the service's container can do its work: of the orchestrators, whether it leads
    docker compose exec -T "$1" python -m ratchet.runtime.container_health readyz >/dev/null 2>&1
}

is_current() {  # container, service: made of the configuration and the image that would be taken now
    [ "$(docker inspect -f '{{index .Config.Labels "com.docker.compose.config-hash"}}' "$1")" = \
        "$(docker compose config --hash "$2" | cut -d ' ' -f 2)" ] &&
        [ "$(docker inspect -f '{{.Image}}' "$1")" = \
            "$(docker image inspect -f '{{.Id}}' "$(docker inspect -f '{{.Config.Image}}' "$1")")" ]
}

replace() {  # each container of a service that is not current, one at a time
    for container in $(docker compose ps --quiet "$1"); do
        if is_current "$container" "$1"; then continue; fi
        say "$1: $(docker inspect -f '{{slice .Name 1}}' "$container")"
        docker stop "$container" >/dev/null
        docker rm "$container" >/dev/null
        docker compose up -d --no-deps --no-build --no-recreate --wait --wait-timeout "$WELL_S" "$1" >/dev/null 2>&1 || {
            say "$1: its successor is not well, and the rest was left as it is: docker compose logs $1"
            exit 1
        }
    done
}

await_leader() {
    waited=0
    until is_ready orchestrator || is_ready orchestrator-standby; do
        [ "$waited" -lt 120 ] || { say "no orchestrator leads: docker compose logs orchestrator orchestrator-standby"; exit 1; }
        waited=$((waited + 1))
        sleep 1
    done
}

running=$(docker compose ps --services --status running)
case " $(echo $running) " in
    *" $UNTOUCHED "*) ;;
    *) say "no fleet runs here; start it: docker compose up -d --build --wait"; exit 1 ;;
esac

# The jobs, made anew without what waits for them: Compose would stop and restart it.
docker compose rm --force --stop $JOBS >/dev/null 2>&1
for job in $JOBS; do
    say "$job"
    docker compose up --no-deps --no-build --no-log-prefix --exit-code-from "$job" "$job" >&2
    [ "$job" = credentials ] &&  # users that are new, and passwords that changed; who is connected stays so
        docker compose exec -T rabbitmq rabbitmqctl -q import_definitions /etc/rabbitmq/credentials/definitions.json
done

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
        "$UNTOUCHED" | orchestrator | orchestrator-standby) ;;
        *) replace "$service" ;;
    esac
done

docker compose up -d --no-build --no-recreate --wait --wait-timeout "$WELL_S" >/dev/null 2>&1 || {
    say "not all is well: docker compose ps"
    exit 1
}
for container in $(docker compose ps --quiet $UNTOUCHED); do
    is_current "$container" $UNTOUCHED || say "rabbitmq's settings changed and it was left alone; to replace it: docker compose up -d rabbitmq"
done
say "all containers are current"
