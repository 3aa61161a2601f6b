#!/usr/bin/env bash
# Installs what is needed, builds the program, and runs its main job: tune an operator, then ask for the kernel that was found.
# Arguments replace the default job: scripts/run.sh matmul --time 60
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_dependencies.sh
cmake --preset release >build-configure.log 2>&1 || { cat build-configure.log >&2; exit 1; }
rm -f build-configure.log
cmake --build --preset release --target nestor_program  # its libraries for other programs are not needed here

nestor=build/release/bin/nestor
if [ $# -gt 0 ]; then
  exec "$nestor" tune "$@"
fi
"$nestor" tune layernorm --rows 4096 --width 1024 --time 40
"$nestor" query layernorm --rows 4096 --width 1024
