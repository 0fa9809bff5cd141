#!/usr/bin/env bash
# A connector whose hooks return at once (launch/plugins/noop_connector.py): the framework alone.
# kv_connector_module_path is a module; the class goes into kv_connector.

default='{"kv_connector": "NoOpConnector", "kv_connector_module_path": "noop_connector", "kv_role": "kv_both"}'
KV_TRANSFER_CONFIG=${KV_TRANSFER_CONFIG:-$default}

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
