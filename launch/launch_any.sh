#!/usr/bin/env bash
# Any connector that exists only as an entry of config/connectors.yaml; KV_TRANSFER_CONFIG comes from there.

: "${KV_TRANSFER_CONFIG:?set KV_TRANSFER_CONFIG to the JSON of the connector}"

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
