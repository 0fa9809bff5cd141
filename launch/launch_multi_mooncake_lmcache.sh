#!/usr/bin/env bash
# Mooncake and LMCache stacked.

default='{"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"connectors": [
  {"kv_connector": "MooncakeConnector", "kv_role": "kv_both"},
  {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
]}}'
KV_TRANSFER_CONFIG=${KV_TRANSFER_CONFIG:-$default}

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
