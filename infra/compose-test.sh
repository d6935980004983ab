#!/bin/sh
# A fleet on Docker Compose from end to end:  sh infra/compose-test.sh
#
# 20 tasks are answered; the agent and the leading orchestrator are killed while 20 more wait, and all are answered; the fleet goes down and
# up again, knows what it answered, and answers 20 more. It has a project of its own, with ports and volumes of its own, and removes them.
# A fleet that runs beside it stays as it is. KEEP=1 leaves it running; BUILD=--no-build takes the images that are there.
set -eu
cd "$(dirname "$0")/.."
export COMPOSE_PROJECT_NAME="${COMPOSE_PROJECT_NAME:-ratchet-test}" COMPOSE_PROFILES='' RATCHET_TRAIN_AFTER_GROUPS=0
export RATCHET_AMQP_PORT="${RATCHET_AMQP_PORT:-25672}" RATCHET_API_PORT="${RATCHET_API_PORT:-28700}"
TASKS=20

say() { printf '%s\n' "== $*"; }

fail() {
    say "$*"
    docker compose logs --tail 40
    exit 1
}

end() { [ -n "${KEEP:-}" ] || docker compose --profile '*' down --volumes --timeout 30; }

submit() {  # 20 tasks whose ids begin with the first word; waits for the answers
    seq "$TASKS" | sed "s/.*/{\"task_id\": \"$1-&\", \"input\": \"sort: dbcae\"}/" \
        | docker compose run --rm -T ratchet submit --file - --timeout 600 > "$answers/$1" || fail "$1: not all were answered"
    [ "$(grep -c "\"$1-" "$answers/$1")" = "$TASKS" ] || fail "$1: there are not $TASKS answers"
}

answers=$(mktemp -d)
trap 'end; rm -rf "$answers"' EXIT
say "up"
docker compose up -d "${BUILD:---build}" --wait --wait-timeout 1800 || fail "the fleet did not get well"
submit first

say "the agent and the leader are killed while tasks wait"
submit second &
submitting=$!
sleep 3
docker compose kill --signal KILL agent orchestrator
docker compose up -d --no-build --wait --wait-timeout 600
wait "$submitting" || fail "tasks were lost when the agent and the leader were killed"

say "down and up"
docker compose down --timeout 60
docker compose up -d --no-build --wait --wait-timeout 600 || fail "the fleet did not come back"
submit first  # the same ids: it knows them, and gives the answers that it gave
submit third
say "$((3 * TASKS)) tasks were answered"
