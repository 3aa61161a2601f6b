#!/usr/bin/env bash
# Installs what is needed, builds everything and runs the tests. Arguments go to ctest: scripts/test.sh -L unit
# NESTOR_TORCH_TESTS=0 leaves out PyTorch, and with it the tests of nestor.torch.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
if [ "${NESTOR_TORCH_TESTS:-1}" != 0 ]; then
  scripts/install_torch.sh build/torch || echo "test.sh: no PyTorch: the tests of nestor.torch are skipped" >&2
fi
cmake --preset dev
cmake --build --preset dev
ctest --preset dev -j "${NESTOR_TEST_JOBS:-$(nproc)}" "$@"
