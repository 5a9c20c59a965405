#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The kernels under NVIDIA's compute-sanitizer, on a machine with a card: memcheck, racecheck, initcheck and synccheck of each family of ops
# on few rows, one after the other: a few seconds each on an H200, racecheck up to 30, of attention more. A finding that is not among
# those explained in docs/kernels/cuda.md, or a test that fails, ends it with an error; logs stay in BUILD_DIR/sanitizer. racecheck wants
# a build with -DDI_CUDA_RACECHECK=ON.
#   tests/cuda_sanitizer.sh [BUILD_DIR [TOOLS [FAMILIES]]]    e.g. tests/cuda_sanitizer.sh build "memcheck racecheck" "linear index"
set -uo pipefail
tests=${1:-build}/tests logs=${1:-build}/sanitizer
tools=${2:-memcheck racecheck initcheck synccheck}
families=${3:-linear aligned aligned_gemm laid_inputs experts router mixes rows engram stores index index_long attention
           two_backends draws adjusted_draws}
command -v compute-sanitizer > /dev/null || { echo "cuda_sanitizer.sh: compute-sanitizer is not there (CUDA toolkit)" >&2; exit 1; }
export DI_TEST_SMALL=1
mkdir -p "$logs"

# The test program of a family and its tests.
program_of() {
  case $1 in
    linear) echo "backend_cuda_matrix_ops_test MatrixOps.LinearEquals*" ;;
    aligned) echo "backend_cuda_aligned_test Aligned.*:AlignedInputs.*" ;;
    aligned_gemm) echo "backend_cuda_aligned_gemm_test AlignedGemm.*" ;;
    laid_inputs) echo "backend_cuda_laid_inputs_test LaidInputs.*" ;;
    experts) echo "backend_cuda_matrix_ops_test ExpertOps.ExpertsEqual*" ;;
    router) echo "backend_cuda_matrix_ops_test MatrixOps.Route*" ;;
    mixes) echo "backend_cuda_row_ops_test RowOps.HyperConnections:RowOps.Expanded*:RowOps.Mixes*" ;;
    rows) echo "backend_cuda_row_ops_test RowOps.Embed:RowOps.Rms*:RowOps.Rope*:RowOps.Sums*:RowOps.Gather*" ;;
    engram) echo "backend_cuda_row_ops_test RowOps.Engram*" ;;
    stores) echo "backend_cuda_cache_ops_test CacheOps.Stores*:CacheOps.Compress*" ;;
    index) echo "backend_cuda_cache_ops_test CacheOps.IndexSelectEquals*:CacheOps.IndexQueries*" ;;
    index_long) echo "backend_cuda_cache_ops_test CacheOps.IndexSelectOfLong*" ;;
    two_backends) echo "backend_cuda_two_backends_test TwoBackends.*" ;;
    attention) echo "backend_cuda_cache_ops_test CacheOps.Attention*" ;;
    draws) echo "backend_cuda_row_ops_test *Draws*" ;;
    adjusted_draws) echo "engine_device_sampling_test *cuda*" ;;
    *) echo "cuda_sanitizer.sh: there is no family $1" >&2; exit 1 ;;
  esac
}

# What racecheck reports and docs/kernels/cuda.md explains: cp.async into a place that other lanes of the warp have read, of whose
# meeting it does not know.
explained='CopyUnit|LoadMatrices'

check() {
  local tool=$1 family=$2 program filter log=$logs/$1-$2.log begin=$SECONDS status=clean code
  read -r program filter <<< "$(program_of "$family")"
  timeout 300 compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 50 "$tests/$program" --gtest_filter="$filter" > "$log" 2>&1
  code=$?
  if ! grep -q '\[  PASSED  \] [1-9]' "$log"; then
    status=FAILED
  elif ((code != 0)) || grep -qE 'Race reported|Potential .* hazard' "$log"; then
    status=FINDINGS
    if [[ $tool == racecheck ]] && ! grep -E 'Race reported' "$log" | grep -vqE "$explained"; then status=explained; fi
  fi
  echo "$tool $family: $status, $((SECONDS - begin)) s; $(grep -E 'SUMMARY' "$log" | tail -1)"
  [[ $status == clean || $status == explained ]]
}

# One after the other: side by side on one card each takes many times as long.
failed=0
for tool in $tools; do
  for family in $families; do check "$tool" "$family" || failed=1; done
done
exit "$failed"
