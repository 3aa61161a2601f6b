#!/usr/bin/env bash
# Runs the tests of nestor.distributed with the Ray of $NESTOR_RAY_PYTHON, or says why they are skipped.
set -euo pipefail
cd "$(dirname "$0")"

python=${NESTOR_RAY_PYTHON:?the interpreter of a virtual environment with Ray}
if ! reason=$("$python" -c "import ray" 2>&1); then
  echo "skipped: $python has no Ray ($(tail -n 1 <<<"$reason")): python3 -m venv build/ray && build/ray/bin/pip install ray brings it"
else
  exec "$python" -m unittest test_distributed
fi
