#!/usr/bin/env bash
# Builds the program if needed and runs it. A prompt alone continues it with the bundled model:
#   ./run.sh "Once upon a time"
#   ./run.sh chat                      any subcommand with its options (./run.sh --help)
set -euo pipefail
cd "$(dirname "$0")"
./build.sh deepinfer
program=${BUILD_DIR:-build}/bin/deepinfer
case ${1-} in
  "" ) exec "$program" chat ;;
  generate | chat | score | info | tokenize | detokenize | render | parse | -* ) exec "$program" "$@" ;;
  * ) exec "$program" generate "$@" ;;
esac
