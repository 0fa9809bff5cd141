#!/usr/bin/env bash
# Mooncake in both roles: the configuration behind the published +45 %.

default='{"kv_connector": "MooncakeConnector", "kv_role": "kv_both"}'
KV_TRANSFER_CONFIG=${KV_TRANSFER_CONFIG:-$default}

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
