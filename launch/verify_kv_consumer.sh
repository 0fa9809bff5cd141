#!/usr/bin/env bash
# A pure consumer, with a bootstrap server beside it that knows no producer: does it serve a plain request?
exec bash "$(dirname "${BASH_SOURCE[0]}")/verify.sh" mooncake_consumer
