#!/usr/bin/env bash
# Mooncake, prefill side only.

default='{"kv_connector": "MooncakeConnector", "kv_role": "kv_producer"}'
KV_TRANSFER_CONFIG=${KV_TRANSFER_CONFIG:-$default}

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
