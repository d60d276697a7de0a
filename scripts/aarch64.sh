# The cross-compiler and the emulator for 64-bit ARM, and cross-compiled wheels (manylinux_2_34_aarch64); sourced by ./run.
# In build/wheel/aarch64: root (Debian's arm64 packages), include and lib (links to its headers of Python and zlib, and to
# zlib), packages (wheels of the dependencies), site (numpy unpacked), cc (a compiler whose programs run under qemu),
# hdf5, and build (the build tree).

arm=$root/build/wheel/aarch64
# The CPython of this Debian is 3.11, so the wheels are for 3.11.
arm_suite=bookworm
arm_python=3.11
arm_packages=python3,python3-venv,libpython3.11-dev,libgomp1,libstdc++6,zlib1g-dev,openmpi-bin,libopenmpi-dev

# aarch64_packages [PROGRAM...]: installs those that are missing, and these programs, from packages of the same name.
aarch64_packages() {
  packages=
  [ -n "$(arm_compiler g++)" ] || packages="g++-aarch64-linux-gnu"
  command -v qemu-aarch64 >/dev/null 2>&1 || packages="$packages qemu-user"
  for name in "$@"; do command -v "$name" >/dev/null 2>&1 || packages="$packages $name"; done
  packages=${packages# }
  [ -z "$packages" ] || install_packages
}

# arm_compiler g++|gcc: prints the name of the cross-compiler, or nothing.
arm_compiler() {
  for name in "aarch64-linux-gnu-$1" "aarch64-linux-gnu-$1-12"; do
    if command -v "$name" >/dev/null 2>&1; then
      printf '%s\n' "$name"
      return 0
    fi
  done
}

# arm_root: makes the root and the folders of headers and wheels, once.
arm_root() {
  step "Debian's arm64 packages: 500 MB, about 1 min, once"
  stamped arm-root "$arm_suite $arm_packages $arm" && [ -d "$arm/root/usr" ] && return 0
  rm -rf "$arm/root" "$arm/include" "$arm/packages" "$arm/site" "$arm/lib"
  mkdir -p "$arm" "$logs"
  follow "$logs/arm-root.log" make_arm_root || fail "$logs/arm-root.log" "the root of arm64 packages cannot be made"
  stamp arm-root "$arm_suite $arm_packages $arm"
}

# Each command is followed by &&: the shell ignores set -e in a command before ||.
make_arm_root() (
  wanted=$(requirements base)
  # For a user, mmdebstrap's default needs more packages, or makes files that the user cannot remove.
  mode=auto
  [ "$(id -u)" -eq 0 ] || mode=chrootless
  # --variant=extract runs no program of the packages. qemu reads a file of the root instead of the file with the same
  # name here, so the root must not have the folders of devices and of temporary files.
  cd "$arm" &&
    mmdebstrap --mode=$mode --variant=extract --architectures=arm64 --include="$arm_packages" "$arm_suite" root &&
    rm -rf root/dev root/proc root/tmp root/var/tmp &&
    mkdir -p include/aarch64-linux-gnu lib site &&
    ln -s ../root/usr/include/python$arm_python ../root/usr/include/zlib.h ../root/usr/include/zconf.h include &&
    ln -s ../../root/usr/include/aarch64-linux-gnu/python$arm_python include/aarch64-linux-gnu &&
    ln -s ../root/lib/aarch64-linux-gnu/libz.so.1 lib/libz.so || return
  set -- --only-binary=:all: --implementation cp --python-version "$arm_python"
  for glibc in 2_17 2_27 2_28 2_34; do set -- "$@" --platform "manylinux_${glibc}_aarch64"; done
  # shellcheck disable=SC2086  # a list of requirements
  "$venv/bin/python" -m pip --disable-pip-version-check download -q "$@" -d packages $wanted &&
    cd site && "$venv/bin/python" -m zipfile -e ../packages/numpy-*.whl .
)

# arm_cc: writes a C compiler whose programs are scripts that start qemu, so that tests of ./configure run.
arm_cc() {
  cat >"$arm/cc" <<EOS
#!/bin/sh
out=a.out
last=
for word in "\$@"; do
  case \$word in -c | -E | -S | -shared | -v | -V | --version | -print*) exec $(arm_compiler gcc) "\$@" ;; esac
  [ "\$last" != -o ] || out=\$word
  last=\$word
done
$(arm_compiler gcc) "\$@" || exit
mv "\$out" "\$out.arm"
printf '#!/bin/sh\\nexec qemu-aarch64 -L "%s" "%s" "\$@"\\n' "$arm/root" "\$(realpath "\$out.arm")" >"\$out"
chmod +x "\$out"
EOS
  chmod +x "$arm/cc"
}

# arm_environment: exports the settings of a cross-build; CMake, scikit-build-core and auditwheel read them.
arm_environment() {
  export _PYTHON_HOST_PLATFORM=linux-aarch64
  export SETUPTOOLS_EXT_SUFFIX=.cpython-311-aarch64-linux-gnu.so
  export AUDITWHEEL_LD_LIBRARY_PATH="$arm/root/usr/lib/aarch64-linux-gnu:$arm/root/lib/aarch64-linux-gnu"
  export CMAKE_ARGS="'-DCMAKE_TOOLCHAIN_FILE=$root/cpp/cmake/aarch64.cmake' \
    '-DCMAKE_C_STANDARD_INCLUDE_DIRECTORIES=$arm/include' '-DCMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES=$arm/include' \
    '-DCMAKE_MODULE_LINKER_FLAGS=-L\"$arm/lib\"' \
    '-DPYTHON_MODULE_EXTENSION=$SETUPTOOLS_EXT_SUFFIX' -DPYTHON_MODULE_DEBUG_POSTFIX= \
    '-DPython_INCLUDE_DIR=$arm/include/python$arm_python' \
    '-DPython_NumPy_INCLUDE_DIR=$arm/site/numpy/_core/include'"
}
