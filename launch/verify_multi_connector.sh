#!/usr/bin/env bash
# Stacked connectors: do they compose, serve and stay alive, also for a prompt longer than a cache chunk?
exec bash "$(dirname "${BASH_SOURCE[0]}")/verify.sh" multi_mooncake_lmcache
