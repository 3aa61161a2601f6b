#!/usr/bin/env bash
# Installs, from apt, what Nestor builds on and is not there yet. Debian 12 and Ubuntu 24.04; as root or through sudo.
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache git
  python3 python3-numpy python3-pip python3-setuptools python3-wheel
  llvm-19-dev llvm-19-tools libpolly-19-dev lld-19 clang-format-19 clang-tidy-19
  libisl-dev libgmp-dev
  libsqlitecpp-dev libsqlite3-dev libzstd-dev zlib1g-dev libxxhash-dev libsodium-dev
  libcli11-dev nlohmann-json3-dev libfmt-dev libedit-dev
  libgtest-dev libgmock-dev libopenblas-dev
)

if ! command -v apt-get >/dev/null; then
  echo "install_dependencies.sh: apt-get not found: Debian 12 and Ubuntu 24.04 are supported." >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "install_dependencies.sh: run as root, or install sudo." >&2; exit 1; }
  as_root=(sudo)
fi

is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
# Prints nothing where no package of that name is known; dpkg-query calls that a failure.
installed_halide() {
  { dpkg-query -W -f='${db:Status-Status} ${Package}\n' 'libhalide*-dev' 2>/dev/null || true; } | awk '$1 == "installed" {print $2}' | head -n 1
}

# Tests of reports use a browser. Ubuntu's package only starts a snap, which they cannot use: only Debian's is one.
. /etc/os-release
if [ "${ID:-}" = debian ]; then packages+=(chromium); fi

missing=()
for package in "${packages[@]}"; do
  is_installed "$package" || missing+=("$package")
done
halide=$(installed_halide)
if [ ${#missing[@]} -eq 0 ] && [ -n "$halide" ]; then
  exit 0
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"; }
apt update
if [ -z "$halide" ]; then
  # The name carries the version: libhalide14-0-dev on Debian 12, libhalide17-1-dev on Ubuntu 24.04.
  halide=$(apt-cache search --names-only '^libhalide[0-9]+(-[0-9]+)?-dev$' | awk '{print $1}' | sort -V | tail -n 1)
  [ -n "$halide" ] || { echo "install_dependencies.sh: no libhalide*-dev package: is the 'universe' component enabled?" >&2; exit 1; }
  missing+=("$halide")
fi
echo "installing: ${missing[*]}"
apt install -y --no-install-recommends "${missing[@]}"
