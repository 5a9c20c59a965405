#!/usr/bin/env bash
# Runs the protocol tests in the pinned virtual environment; 77 (skipped) where that cannot be made.
#   run.sh PROGRAM SOURCE_DIR BINARY_DIR [unittest names]
set -euo pipefail
program=$1 source=$2 binary=$3
shift 3
python=$("$source/tools/server_venv.sh" "$binary/venv-server") || { echo "skipped: the client libraries cannot be installed"; exit 77; }
cd "$source/tests/server/protocols"
DI_PROGRAM=$program DI_SOURCE=$source DI_BINARY=$binary PYTHONDONTWRITEBYTECODE=1 exec "$python" run.py "$@"
