#!/bin/sh
# The stack dev on a cluster of kind, from the images to `pulumi destroy`:  sh infra/kind-test.sh
#
# 20 tasks are answered; so are 20 during which an agent's and the leader's pod are killed, 20 after an upgrade to another tag and 20 after
# the way back. Needs docker, kind, kubectl, pulumi and the program ratchet with '.[infra]'. Cluster and state are its own and removed.
set -eu
cd "$(dirname "$0")/.."
CLUSTER=ratchet-test TASKS=20 PORT=25672
work=$(mktemp -d)
export KUBECONFIG="$work/kubeconfig" PULUMI_BACKEND_URL="file://$work" PULUMI_CONFIG_PASSPHRASE=test
services="orchestrator gateway agent scorer trainer cli"

say() { printf '%s\n' "== $*"; }

end() {
    kill "${forward:-}" 2>/dev/null || true
    kind delete cluster --name "$CLUSTER" || true
    rm -rf "$work"
}

deploy() {  # the stack with images of this tag, until all is well
    pulumi -C infra config set --stack dev --path 'ratchet:fleet.images.tag' "$1"
    pulumi -C infra up --stack dev --yes --skip-preview
    for one in $(kubectl -n ratchet get statefulset,deployment --output name); do
        kubectl -n ratchet rollout status "$one" --timeout 600s
    done
}

submit() {  # 20 tasks whose ids begin with the first word; waits for the answers
    url=$(pulumi -C infra stack output --stack dev client_amqp_url --show-secrets | sed "s|@[^/]*/|@127.0.0.1:$PORT/|")
    seq "$TASKS" | sed "s/.*/{\"task_id\": \"$1-&\", \"input\": \"sort: dbcae\"}/" > "$work/$1.jsonl"
    RATCHET_AMQP_URL=$url ratchet submit --file "$work/$1.jsonl" --out "$work/$1.out" --timeout 600
    [ "$(grep -c "\"$1-" "$work/$1.out")" = "$TASKS" ]
}

forward_broker() {
    kill "${forward:-}" 2>/dev/null || true
    kubectl -n ratchet port-forward service/rabbitmq "$PORT:5672" > "$work/forward.log" 2>&1 &
    forward=$!
    until grep -q Forwarding "$work/forward.log"; do kill -0 "$forward"; sleep 1; done
}

trap end EXIT
kind create cluster --name "$CLUSTER" --wait 120s
for service in $services; do
    image="localhost:5000/ratchet-$service"
    docker build --file services/Dockerfile --build-arg "SERVICE=$service" --tag "$image:dev" .
    docker tag "$image:dev" "$image:next"
    kind load docker-image --name "$CLUSTER" "$image:dev" "$image:next"
done
cp infra/Pulumi.dev.yaml "$work/"
trap 'cp "$work/Pulumi.dev.yaml" infra/; end' EXIT
pulumi -C infra stack init dev

say "install"
deploy dev
forward_broker
submit first

say "an agent and the leader are killed while tasks wait"
submit second &
submitting=$!
sleep 3
kubectl -n ratchet delete pod --grace-period 0 --force -l app.kubernetes.io/instance=agent-small
kubectl -n ratchet delete pod --grace-period 0 --force -l app.kubernetes.io/instance=orchestrator
wait "$submitting"

say "upgrade"
deploy next
forward_broker
submit third

say "the way back"
deploy dev
forward_broker
submit fourth

say "the end"
pulumi -C infra destroy --stack dev --yes --skip-preview
[ -z "$(kubectl get namespace ratchet --ignore-not-found --output name)" ]
say "$((4 * TASKS)) tasks were answered"
