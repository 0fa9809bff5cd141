#!/usr/bin/env bash
# The no-op connector: is it found by its module path and does it serve?
exec bash "$(dirname "${BASH_SOURCE[0]}")/verify.sh" noop_connector
