#!/usr/bin/env bash
# Fails when a C++ file is not formatted as .clang-format says. --fix formats instead.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run -Werror)
[ "${1:-}" = --fix ] && mode=(-i)
git ls-files -z --cached --others --exclude-standard -- '*.cc' '*.h' |
  while IFS= read -r -d '' file; do [ -e "$file" ] && printf '%s\0' "$file"; done |
  xargs -0 -r clang-format-19 "${mode[@]}"
[ "${1:-}" = --fix ] || echo "format: as .clang-format says"
