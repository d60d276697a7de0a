# The cross-compiler and the emulator for 64-bit ARM; sourced by ./run.

# Installs those that are missing.
aarch64_packages() {
  packages=
  command -v aarch64-linux-gnu-g++ >/dev/null 2>&1 || command -v aarch64-linux-gnu-g++-12 >/dev/null 2>&1 ||
    packages="g++-aarch64-linux-gnu"
  command -v qemu-aarch64 >/dev/null 2>&1 || packages="$packages qemu-user"
  packages=${packages# }
  [ -z "$packages" ] || install_packages
}
