#!/usr/bin/env bash
# Packs the built fuzz targets for another machine: scripts/fuzz_package.sh BUILD_FOLDER OUT.tar.xz. The other machine needs glibc and bash:
# unpack it, then ./fz.sh SECONDS JOBS OUT (scripts/fuzz_many.sh). Symbols stay here: addr2line -e BUILD_FOLDER/tests/fuzz/NAME_fuzz ADDRESS.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(realpath "${1:?BUILD_FOLDER OUT}") out=$(realpath "${2:?BUILD_FOLDER OUT}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/lib"
cp -r tests/fuzz/corpus "$folder/corpus"
cp scripts/fuzz_many.sh "$folder/fz.sh"
for target in "$build"/tests/fuzz/*_fuzz; do
  strip -o "$folder/$(basename "$target")" "$target"
  # glibc alone is everywhere.
  ldd "$target" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | grep -Ev '/(libc|libm|libdl|libpthread|librt|ld-linux-x86-64)\.so' | while read -r library; do
    [ -e "$folder/lib/$(basename "$library")" ] || cp -L "$library" "$folder/lib/"
  done
done
tar -C "$folder" -cJf "$out" .
ls -l "$out"
