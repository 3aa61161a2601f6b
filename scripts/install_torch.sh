#!/usr/bin/env bash
# Makes a virtual environment with the PyTorch that nestor.torch is tested with, unless it is there: scripts/install_torch.sh build/torch
# transformers joins it; without it the tests of attn_implementation="nestor" are skipped, and say so.
set -euo pipefail
folder=${1:?usage: scripts/install_torch.sh FOLDER}
version="2.11"

is_there() { "$folder/bin/python" -c "import numpy, torch; assert torch.__version__.startswith('$version.')" 2>/dev/null; }
has_transformers() { "$folder/bin/python" -c "from transformers import AttentionMaskInterface" 2>/dev/null; }
is_there && has_transformers && exit 0
base=/usr/bin/python3
[ -x "$base" ] || base=python3
install() { "$base" -m pip --python "$folder/bin/python" install -q --disable-pip-version-check --progress-bar off "$@"; }
if ! is_there; then
  echo "installing PyTorch $version into $folder (4.7 GB; NESTOR_TORCH_TESTS=0 leaves it out)"
  "$base" -m venv --without-pip --clear "$folder"
  install "torch==$version.*" numpy
fi
has_transformers || install "transformers==5.17.*" || echo "install_torch.sh: no transformers: its tests are skipped" >&2
is_there
