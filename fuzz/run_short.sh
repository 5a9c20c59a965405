#!/usr/bin/env bash
# Builds every fuzz target with clang and runs each for a bounded time, from seeds out of the repository.
#   fuzz/run_short.sh SECONDS [TARGET...]     e.g. fuzz/run_short.sh 5 safetensors config_json
# Exit code 0: no target found anything. A finding's input is left in build-fuzz/findings/.
# Environment: JOBS (default: all cores).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:?usage: fuzz/run_short.sh SECONDS [TARGET...]}
shift
build_dir=build-fuzz
targets=("$@")
((${#targets[@]})) || mapfile -t targets < <(ls fuzz/*_fuzz.cc | xargs -n1 basename | sed 's/_fuzz\.cc$//')

[[ -f $build_dir/build.ninja ]] || cmake --preset fuzz >/dev/null
cmake --build "$build_dir" --parallel "${JOBS:-$(nproc)}" --target "${targets[@]/%/_fuzz}"

# Seeds: files of the repository that the target's format is about.
seeds() {
  case $1 in
    config_json) ls tests/golden/model/*/config.json tests/golden/dspark/config.json models/*/config.json \
      tests/checkpoint/published/*.json ;;
    tokenizer_json) ls tests/golden/model/*/tokenizer.json ;;
    tokenizer_encode) ls tests/golden/*/README.md models/*/README.md ;;
    recipe_request) python3 fuzz/make_recipe_seeds.py "$build_dir/made_seeds/recipe_request" ;;
    safetensors) python3 fuzz/make_safetensors_seeds.py "$build_dir/made_seeds/safetensors" ;;
    grammar) python3 fuzz/make_grammar_seeds.py "$build_dir/made_seeds/grammar" ;;
    http_request) python3 fuzz/make_http_seeds.py "$build_dir/made_seeds/http_request" ;;
  esac
}

mkdir -p "$build_dir/findings"
status=0
for target in "${targets[@]}"; do
  corpus=$build_dir/corpus/$target
  mkdir -p "$corpus"
  for seed in $(seeds "$target"); do
    cp "$seed" "$corpus/seed-$(echo "$seed" | tr / -)"
  done
  log=$build_dir/$target.log
  if "$build_dir/bin/${target}_fuzz" "$corpus" -max_total_time="$seconds" -max_len=65536 -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix="$build_dir/findings/$target-" >"$log" 2>&1; then
    echo "$target: $(awk '/executed_units/ {print $2}' "$log") inputs in $seconds s, nothing found"
  else
    tail -n 60 "$log"
    echo "$target: FAILED, see $log and $build_dir/findings/" >&2
    status=1
  fi
done
exit $status
