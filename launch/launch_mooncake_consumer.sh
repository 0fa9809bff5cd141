#!/usr/bin/env bash
# Mooncake, decode side only. It contacts a bootstrap server only when a request names one.

default='{"kv_connector": "MooncakeConnector", "kv_role": "kv_consumer"}'
KV_TRANSFER_CONFIG=${KV_TRANSFER_CONFIG:-$default}

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
