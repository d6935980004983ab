#!/usr/bin/env bash
# The engine's contract against a real vLLM: `make vllm-test`. Writes what the server said to the recording that the
# normal tests replay. The first run installs 3 GB; then about five minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=.venv/bin/python port=${PORT:-8711}
work=$(mktemp -d)
"$python" -m tests.ratchet.models.tiny_model "$work/model"

tests/integration/vllm_server.sh "$work/model" "$port" > "$work/server.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

for _ in $(seq 600); do
  curl --silent --fail "http://127.0.0.1:$port/health" > /dev/null && break
  kill -0 "$server" 2>/dev/null || { tail -40 "$work/server.log"; echo "the server ended before it was healthy"; exit 1; }
  sleep 1
done

RATCHET_TEST_VLLM_URL="http://127.0.0.1:$port" "$python" -m pytest tests/services/agent/engines -m vllm --timeout 600 "$@"
