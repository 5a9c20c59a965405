#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The kernels under NVIDIA's compute-sanitizer, on a machine with a card: memcheck, racecheck and initcheck of the op tests with
# few rows. Minutes each. A finding, or a test that fails, ends it with an error.
#   tests/cuda_sanitizer.sh [BUILD_DIR [TOOLS [TESTS]]]    e.g. tests/cuda_sanitizer.sh build "memcheck racecheck" "matrix_ops row_ops"
set -euo pipefail
cd "$(dirname "$0")/.."
build_dir=${1:-build}
tools=${2:-memcheck racecheck initcheck}
tests=${3:-row_ops cache_ops matrix_ops sampling}
command -v compute-sanitizer > /dev/null || { echo "cuda_sanitizer.sh: compute-sanitizer is not there (CUDA toolkit)" >&2; exit 1; }
export DI_TEST_SMALL=1
failed=()
for tool in $tools; do
  for test in $tests; do
    program=$build_dir/tests/backend_cuda_${test}_test
    filter='*'
    if [[ $test == sampling ]]; then program=$build_dir/tests/engine_device_sampling_test filter='*cuda*'; fi
    echo "== $tool $test"
    # initcheck: copies may carry bytes that nobody reads, such as those behind the last row of a table.
    if compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 5 "$program" --gtest_filter="$filter" \
        > "$build_dir/sanitizer.log" 2>&1; then
      grep -E 'SUMMARY|PASSED' "$build_dir/sanitizer.log"
    else
      failed+=("$tool:$test")
      tail -40 "$build_dir/sanitizer.log"
    fi
  done
done
if ((${#failed[@]})); then echo "findings: ${failed[*]}"; exit 1; fi
