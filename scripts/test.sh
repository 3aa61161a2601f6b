#!/usr/bin/env bash
# Installs what is needed, builds everything and runs the tests. Arguments go to ctest: scripts/test.sh -L unit
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
cmake --preset dev
cmake --build --preset dev
ctest --preset dev -j "${NESTOR_TEST_JOBS:-$(nproc)}" "$@"
