#!/usr/bin/env bash
# A virtual environment with the client libraries that the server's tests use, pinned. Makes it where it is missing, and
# prints its Python.
#   tools/server_venv.sh DIRECTORY
# Exit code 77: it cannot be made (no network, no venv module).
set -euo pipefail
directory=$1
packages="openai==3.57.0 anthropic==2.14.0 playwright==1.65.2"
if [[ "$(cat "$directory/packages" 2>/dev/null)" != "$packages" ]]; then
  rm -rf "$directory"
  if ! { python3 -m venv "$directory" && "$directory/bin/pip" install --quiet --retries 2 $packages; } >&2; then
    rm -rf "$directory"
    echo "server_venv.sh: cannot install $packages" >&2
    exit 77
  fi
  echo "$packages" > "$directory/packages"
fi
echo "$directory/bin/python"
