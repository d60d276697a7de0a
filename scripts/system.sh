# Python, compiler and libraries of the system: sourced by ./run. find_python sets $python, missing_packages
# sets $packages.

recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
# The interpreter's own path, which differs from the path of a shim or a link.
real_path() { "$1" -c 'import os, sys; print(os.path.realpath(sys.executable))'; }
# Checks of an interpreter: its headers exist, and it can create an environment with pip.
has_headers() {
  "$1" -c 'import os, sys, sysconfig; sys.exit(not os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}
has_venv() { "$1" -c 'import venv, ensurepip' >/dev/null 2>&1; }
from_debian() { case $(real_path "$1") in /usr/bin/*) return 0 ;; *) return 1 ;; esac; }

# Uses the first interpreter that is complete or that apt can complete, otherwise Debian's own.
find_python() {
  if [ -n "${PYTHON:-}" ]; then candidates=$PYTHON; else candidates="python3 python3.13 python3.12 python3.11 /usr/bin/python3"; fi
  for candidate in $candidates; do
    command -v "$candidate" >/dev/null 2>&1 && recent "$candidate" || continue
    if { has_headers "$candidate" && has_venv "$candidate"; } || from_debian "$candidate"; then
      python=$(command -v "$candidate")
      return 0
    fi
  done
  [ -z "${PYTHON:-}" ] || die "PYTHON=$PYTHON is not a complete Python of 3.11 or newer (headers and venv)."
  python=
}

# Stores the names of the missing Debian packages in $packages.
missing_packages() {
  packages=
  if [ -z "$python" ]; then
    packages="python3 python3-dev python3-venv"
  else
    version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    has_headers "$python" || packages="$packages $version-dev"
    has_venv "$python" || packages="$packages $version-venv"
  fi
  command -v g++ >/dev/null 2>&1 || packages="$packages g++"
  command -v cmake >/dev/null 2>&1 || packages="$packages cmake"
  command -v ninja >/dev/null 2>&1 || packages="$packages ninja-build"
  [ -f /usr/include/eigen3/Eigen/Core ] || packages="$packages libeigen3-dev"
  [ -f /usr/include/hdf5/serial/hdf5.h ] || [ -f /usr/include/hdf5.h ] || packages="$packages libhdf5-dev"
  [ -f /usr/include/doctest/doctest.h ] || packages="$packages doctest-dev"
  [ -f /usr/include/benchmark/benchmark.h ] || packages="$packages libbenchmark-dev"
  # For ranks as processes. Without apt the build continues without them.
  if command -v apt-get >/dev/null 2>&1; then
    { command -v mpicc >/dev/null 2>&1 && command -v mpirun >/dev/null 2>&1; } || packages="$packages libopenmpi-dev openmpi-bin"
  fi
  packages=${packages# }
}

install_packages() {
  command -v apt-get >/dev/null 2>&1 || die "missing: $packages (Debian's names); install them and try again."
  sudo=
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 || die "missing: $packages; as root: apt-get install $packages"
    sudo=sudo
  fi
  say "  installing with apt-get, 1 to 3 min: $packages"
  $sudo apt-get update -qq
  # shellcheck disable=SC2086  # a list of names
  follow "$logs/apt.log" $sudo env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -q --no-install-recommends $packages || fail "$logs/apt.log" "apt-get failed"
}
