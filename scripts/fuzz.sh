#!/usr/bin/env bash
# Runs each built fuzz target for a time, two at once: scripts/fuzz.sh [BUILD_FOLDER] [SECONDS]. What failed is kept in BUILD_FOLDER/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(realpath "${1:-build/dev}") seconds=${2:-60} corpus=$PWD/tests/fuzz/corpus
# Other inputs with each commit, the same ones for one commit.
seed=$((16#$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1)))

run_target() {
  local target=$1 name folder
  name=$(basename "$target" _fuzz)
  folder=$build/fuzz/$name
  mkdir -p "$folder"
  if (cd "$folder" && "$target" -runs=1000000000 -seconds="$seconds" -seed="$seed" "$corpus/$name" >out 2>&1); then
    echo "fuzz $name: $(tail -n 1 "$folder/out")"
  else
    tail -n 40 "$folder/out"
    echo "fuzz $name: FAILED; the input is $folder/crash.input (seed $seed)"
    return 1
  fi
}
export -f run_target
export build seconds corpus seed
printf '%s\0' "$build"/tests/fuzz/*_fuzz | xargs -0 -n 1 -P 2 bash -c 'run_target "$1"' _
