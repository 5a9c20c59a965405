#!/usr/bin/env bash
# The long runs of tests that the everyday run does in small (an hour and a half on two cores).
set -euo pipefail
cd "$(dirname "$0")/.."
build_dir=${BUILD_DIR:-build}
./build.sh all
"$build_dir"/tests/engine_determinism_test 300
"$build_dir"/tests/engine_cases_a_test 10
"$build_dir"/tests/engine_drafts_test full
"$build_dir"/tests/engine_verification_test full
./fuzz/run_short.sh 120
DI_SCALE=20 tests/server/protocols/run.sh "$PWD/$build_dir/bin/deepinfer" "$PWD" "$PWD/$build_dir" cases_test
