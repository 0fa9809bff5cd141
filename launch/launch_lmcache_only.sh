#!/usr/bin/env bash
# LMCache alone.

default='{"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}'
KV_TRANSFER_CONFIG=${KV_TRANSFER_CONFIG:-$default}

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
