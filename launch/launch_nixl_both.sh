#!/usr/bin/env bash
# NIXL in both roles.

default='{"kv_connector": "NixlConnector", "kv_role": "kv_both"}'
KV_TRANSFER_CONFIG=${KV_TRANSFER_CONFIG:-$default}

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
