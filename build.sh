#!/usr/bin/env bash
# Installs what the build needs (Debian 12, as root), configures and builds. The program lands in build/bin/deepinfer.
#   ./build.sh                 the program
#   ./build.sh TARGET...       these targets ("all" builds the tests too)
# Environment: BUILD_DIR (default build), JOBS (default: all cores).
set -euo pipefail
cd "$(dirname "$0")"
build_dir=${BUILD_DIR:-build}

missing=()
for package in $(grep -v '^#' tools/packages.txt); do
  dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || missing+=("$package")
done
if ((${#missing[@]})); then
  echo "installing: ${missing[*]}" >&2
  if ((EUID != 0)); then
    echo "build.sh: these packages are missing; run as root, or: sudo apt-get install ${missing[*]}" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >&2
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

[[ -f $build_dir/build.ninja ]] || cmake --preset default -B "$build_dir" ${DI_CMAKE_ARGS:-} >&2
cmake --build "$build_dir" --parallel "${JOBS:-$(nproc)}" --target "${@:-deepinfer}" >&2
