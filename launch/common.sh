# Sourced by every launch_<configuration>.sh, which sets KV_TRANSFER_CONFIG (empty: no connector).
# Launches one OpenAI-compatible engine on loopback and becomes it (exec), so the caller's child is
# the engine itself. The pipeline sets the variables below; by hand, MODEL is enough:
#
#   MODEL=Qwen/Qwen3-Coder-30B-A3B-Instruct bash launch/launch_plain.sh
#
# Arguments are passed on to the engine; without any, those of the published experiment are used. `--in-container N WORD...` before them
# are N words that run what follows in a container (connector_tax/run/engine/container.py); the project is mounted there under its own path.

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
: "${ENGINE_PYTHON:=python3}"
: "${ENGINE_MODULE:=vllm_serve}"   # launch/plugins/vllm_serve.py: the `vllm` command, also where that fails
: "${MODEL:?set MODEL to a model directory or hub id}"
: "${SERVED_MODEL_NAME:=$MODEL}"
: "${HOST:=127.0.0.1}"
: "${PORT:=8000}"
root=$(dirname "$here")
[ -z "${ENGINE_PYTHONPATH+set}" ] || PYTHONPATH=$ENGINE_PYTHONPATH   # of a container: what its image has, which nobody out here goes by
case "$ENGINE_MODULE" in connector_tax.*) PYTHONPATH=$root/src${PYTHONPATH:+:$PYTHONPATH} ;; esac
export PYTHONPATH="$here/plugins:$root/patches${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "${CONNECTOR_TAX_VIRTUAL_GPU:-}" ]; then   # a JSON document, see docs/virtual-gpu.md: a clock in place of the GPU
  PYTHONPATH="$here/plugins/virtual_gpu/entry:$PYTHONPATH"
  export CUDA_VISIBLE_DEVICES=
  [ -z "${VLLM_PLUGINS:-}" ] || export VLLM_PLUGINS="$VLLM_PLUGINS,virtual_gpu"
fi

container=()
if [ "${1:-}" = --in-container ]; then
  container=("${@:3:$2}")
  shift $(($2 + 2))
fi
if [ $# -eq 0 ]; then
  set -- --tensor-parallel-size 1 --max-model-len 200000 --max-num-batched-tokens 8192 \
         --gpu-memory-utilization 0.9 --enable-prefix-caching --enable-chunked-prefill
fi

model=(--model "$MODEL")
if [ "$ENGINE_MODULE" = vllm_serve ]; then
  model=(serve "$MODEL")
fi
command=("${container[@]}" "$ENGINE_PYTHON" -m "$ENGINE_MODULE" "${model[@]}"
         # One word, and before the others: vLLM takes the word after --name.key for its value, whatever that is.
         ${KV_TRANSFER_CONFIG:+"--kv-transfer-config=$KV_TRANSFER_CONFIG"}
         --served-model-name "$SERVED_MODEL_NAME" --host "$HOST" --port "$PORT" "$@")
if [ -n "${LAUNCH_SH_OUT:-}" ]; then
  source "$here/record.sh"
  launch_sh > "$LAUNCH_SH_OUT"
fi
if [ ${#container[@]} -gt 0 ] && [ -n "${CONNECTOR_TAX_HANDED:-}" ]; then   # the container is told these through its standard input
  for name in $CONNECTOR_TAX_HANDED; do command=(-u "$name" "${command[@]}"); done
  command=(env "${command[@]}")
fi
if [ -n "${ENGINE_CPUS:-}" ]; then   # cores that the load generator leaves to the engine
  command=(taskset --cpu-list "$ENGINE_CPUS" "${command[@]}")
fi

exec "${command[@]}"
