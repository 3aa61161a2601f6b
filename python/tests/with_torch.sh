#!/usr/bin/env bash
# Runs the tests of nestor.torch with the PyTorch of $NESTOR_TORCH_PYTHON, or says why they are skipped.
set -euo pipefail
cd "$(dirname "$0")"

# Inductor tries the processor's instruction sets in processes that import PyTorch, in each process that compiles: here half of them.
export TORCHINDUCTOR_VEC_ISA_OK=1
python=${NESTOR_TORCH_PYTHON:?the interpreter of a virtual environment with PyTorch}
if [ "${NESTOR_TORCH_TESTS:-1}" = 0 ]; then
  echo "skipped: NESTOR_TORCH_TESTS=0"
elif ! reason=$("$python" -c "import numpy, torch" 2>&1); then
  echo "skipped: $python has no PyTorch ($(tail -n 1 <<<"$reason")): scripts/install_torch.sh build/torch brings it"
else
  exec "$python" -m unittest discover -p "test_torch*.py"
fi
