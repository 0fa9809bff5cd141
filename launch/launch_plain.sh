#!/usr/bin/env bash
# vLLM without a connector: the baseline of every tax.

KV_TRANSFER_CONFIG=

source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
