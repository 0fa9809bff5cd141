#!/usr/bin/env bash
exec bash "$(dirname "${BASH_SOURCE[0]}")/common.sh" launch nixl_both "$@"
