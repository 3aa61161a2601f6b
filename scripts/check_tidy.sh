#!/usr/bin/env bash
# Fails when clang-tidy finds something in src/, include/ or kernels/ that .clang-tidy asks for, or a file lacks an include.
# Arguments are sources to look at instead: scripts/check_tidy.sh src/db/*.cc
# Sources are checked inside clangd, which leaves the bodies of system headers alone: that takes an eighth of clang-tidy's time.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v clangd-19 >/dev/null || { echo "check_tidy.sh: clangd-19 is missing: apt-get install clangd-19" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Compile commands of each source, without precompiled headers: GCC's are nothing to clang, and would hide what a file does not include.
cmake --preset dev -B "$work/build" -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DNESTOR_UNITY=OFF >"$work/configure.log" 2>&1 ||
  { cat "$work/configure.log" >&2; exit 1; }
mkdir "$work/clangd"
printf 'Diagnostics:\n  ClangTidy:\n    FastCheckFilter: None\n  UnusedIncludes: None\n' >"$work/clangd/config.yaml"

check_source() {
  local log="$1/${2//\//_}.log"
  XDG_CONFIG_HOME=$1 clangd-19 --check="$PWD/$2" --compile-commands-dir="$1/build" --check-locations=0 --check-warnings \
    --clang-tidy --enable-config >"$log" 2>&1 || true
  grep -q 'All checks completed' "$log" || echo "$2: clangd did not finish"
  sed -nE "s|^E\[[^]]*\] (\[[a-z_-].*\] Line [0-9]+:.*)|$2: \1|p" "$log"
}
export -f check_source

# Headers all at once: what two of them define by one name is found as well.
check_headers() {
  git ls-files "$@" | sed "s|.*|#include \"$PWD/&\"|" >"$work/headers.cc"
  { clang-tidy-19 -quiet --config-file=.clang-tidy "$work/headers.cc" -- -std=c++20 -Isrc -Iinclude \
    -isystem "$(llvm-config-19 --includedir)" -isystem "$(sed -n 's/^HALIDE_INCLUDE_DIR:PATH=//p' "$work/build/CMakeCache.txt")" \
    2>/dev/null || true; } | grep -E ': (warning|error): ' | sed "s|^$PWD/||" | sort -u || true
}

{
  if [ $# -gt 0 ]; then
    printf '%s\0' "$@"
  else
    git ls-files -z 'src/*.cc' 'kernels/*.cc'
  fi | xargs -0 -P "$(nproc)" -I{} bash -c 'check_source "$0" {}' "$work"
  if [ $# -eq 0 ]; then
    check_headers 'src/frontend/*.h' 'kernels/*.h' include/nestor/halide.h  # Halide has an LLVM of its own
    check_headers 'src/*.h' 'include/*.h' ':!src/frontend' ':!include/nestor/halide.h'
  fi
} | tee "$work/findings"
[ ! -s "$work/findings" ] || exit 1
echo "tidy: no findings"
