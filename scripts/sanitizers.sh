# Fuzzing of the readers, and the C++ test suites under gcc's sanitizers; sourced by ./run.

n_targets=24 # targets in Python: they get equal parts of the time, and run in parallel with the C++ targets

# configure_fuzz: configures tests/fuzz in build/fuzz with the interpreter of .venv.
configure_fuzz() {
  [ -f "$root/build/fuzz/build.ninja" ] ||
    cmake -S "$root/tests/fuzz" -B "$root/build/fuzz" -G Ninja -DPython_EXECUTABLE="$venv/bin/python" \
      -Dpybind11_DIR="$("$venv/bin/python" -m pybind11 --cmakedir)" >"$logs/fuzz-configure.log" 2>&1 ||
    fail "$logs/fuzz-configure.log" "CMake failed"
}

# native_targets SECONDS SEED: runs every C++ target for SECONDS; status 1 if one of them found a fault.
native_targets() {
  found=0
  for program in "$root"/build/fuzz/fuzz_*; do
    name=${program##*/fuzz_}
    LSAN_OPTIONS=suppressions=$root/tests/fuzz/leaks.txt:print_suppressions=0 UBSAN_OPTIONS=print_stacktrace=1 \
      "$program" --corpus "$root/tests/fuzz/corpus/$name" --failures "$failures" --seconds "$1" --seed "$2" || found=1
  done
  return "$found"
}

# run_targets SECONDS SEED: runs the Python targets in parallel with the C++ targets; status 1 if one of them found a
# fault. The inputs are stored in build/fuzz/failures.
run_targets() {
  failures=$root/build/fuzz/failures
  rm -rf "$failures"
  mkdir -p "$failures"
  status=0
  native_targets "$@" &
  native=$!
  # The interpreter keeps memory until it exits, so leaks are not checked there.
  MUDD_FUZZ_PRELOAD="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libubsan.so)" \
    MUDD_FUZZ_MODULES=$root/build/fuzz ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
    "$venv/bin/python" "$root/tests/fuzz/python/driver.py" --failures "$failures" --seconds "$1" --seed "$2" ||
    status=1
  wait "$native" || status=1
  return "$status"
}

# fuzz [MINUTES [SEED]]
fuzz() {
  case ${1:-1} in '' | *[!0-9]* | 0*) die "fuzz: expected minutes above 0, got '$1'" ;; esac
  steps=4
  setup_venv
  install_groups build base
  step "building the readers with AddressSanitizer and UndefinedBehaviorSanitizer: $(about 120)"
  mkdir -p "$logs"
  configure_fuzz
  follow "$logs/fuzz-build.log" cmake --build "$root/build/fuzz" || fail "$logs/fuzz-build.log" "the build failed"
  n_native=$(printf "%s\n" "$root"/build/fuzz/fuzz_* | wc -l)
  step "fuzzing $((n_targets + n_native)) readers for ${1:-1} min in all, seed ${2:-1}"
  run_targets $((${1:-1} * 60 / n_targets)) "${2:-1}" || die "fuzz: a reader broke a rule; see above"
  say "fuzz: clean"
}

# suite PRESET CTEST_OPTIONS: builds the C++ tests with a sanitizer and runs them.
suite() {
  preset=$1
  shift
  step "building the C++ tests: build/$preset"
  cmake --preset "$preset" >"$logs/$preset-configure.log" 2>&1 || fail "$logs/$preset-configure.log" "CMake failed"
  follow "$logs/$preset-build.log" cmake --build "$root/build/$preset" ||
    fail "$logs/$preset-build.log" "the build failed"
  step "running them"
  follow "$logs/$preset-ctest.log" ctest --test-dir "$root/build/$preset" --output-on-failure "$@" ||
    fail "$logs/$preset-ctest.log" "a test failed under the $preset preset"
  say "$preset: $(grep -E 'tests passed|tests failed' "$logs/$preset-ctest.log")"
}

# allocation_test is left out: it replaces malloc, as the sanitizers do. The thread sanitizer runs at one instruction
# set level only, and without crash_replay_test, which has no threads.
sanitize() {
  steps=5
  setup_venv
  mkdir -p "$logs"
  UBSAN_OPTIONS=print_stacktrace=1
  export UBSAN_OPTIONS
  suite asan -E '^allocation_test$'
  suite tsan -E '\.(portable|avx512|emu_.*)$|^allocation_test$|^crash_replay_test$'
  say "sanitize: clean"
}
