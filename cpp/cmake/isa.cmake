# Kernels are built once per instruction-set level, each level an object library with its own flags.
# add_levels(folder) finds kernel-inl.h (built for every level over Vec) and <level>.cc files (hand-written for
# one level) in cpp/mudd/<folder>. No link-time optimisation and no shared inline functions across levels.
# Emulations of levels are linked into the testing build only (cpp/testing).
# Unit levels (bf16 units and their emulations) have only <level>.cc files: every other op runs there as on avx512.

set(MUDD_LEVELS portable)
set(MUDD_FLAGS_portable "")
set(MUDD_VEC_portable MUDD_VEC_PORTABLE)
set(MUDD_EMULATED_UNITS emu_avx512_bf16 emu_amx_bf16)
set(MUDD_UNIT_LEVELS ${MUDD_EMULATED_UNITS})
# The emulations only run in tests: -O3 would unroll their lane loops for a third of the whole build time.
foreach(level ${MUDD_EMULATED_UNITS})
  if(NOT DEFINED MUDD_OPTIMIZE_${level})  # of a preset
    set(MUDD_OPTIMIZE_${level} -O1)
  endif()
endforeach()
set(MUDD_VEC_emu_avx512_bf16 MUDD_VEC_SIXTEEN)
set(MUDD_VEC_emu_amx_bf16 MUDD_VEC_SIXTEEN)
set(MUDD_X86_LEVELS avx2 avx512)
set(MUDD_X86_UNIT_LEVELS avx512_bf16 amx_bf16)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND MUDD_LEVELS ${MUDD_X86_LEVELS})
  list(APPEND MUDD_UNIT_LEVELS ${MUDD_X86_UNIT_LEVELS})
  set(MUDD_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(MUDD_VEC_avx2 MUDD_VEC_AVX2)
  set(MUDD_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512)
  set(MUDD_VEC_avx512 MUDD_VEC_AVX512)
  set(MUDD_FLAGS_avx512_bf16 ${MUDD_FLAGS_avx512} -mavx512bf16)
  set(MUDD_VEC_avx512_bf16 MUDD_VEC_AVX512)
  set(MUDD_FLAGS_amx_bf16 ${MUDD_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16)
  set(MUDD_VEC_amx_bf16 MUDD_VEC_AVX512)
endif()
set(MUDD_ARM_LEVELS neon)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND MUDD_LEVELS ${MUDD_ARM_LEVELS})
  # NEON is a part of the base instructions. gcc would schedule loads before it assigns registers, and spill sums.
  set(MUDD_FLAGS_neon $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)
  set(MUDD_VEC_neon MUDD_VEC_NEON)
endif()

# A file of one level: <source> compiled with the level's flags and MUDD_ISA set.
function(mudd_level_source level source)
  set_property(GLOBAL APPEND PROPERTY MUDD_SOURCES_${level} ${source})
endfunction()

function(add_levels place)
  set(folder ${PROJECT_SOURCE_DIR}/cpp/mudd/${place})
  get_filename_component(op ${place} NAME)
  if(EXISTS ${folder}/kernel-inl.h)
    foreach(level ${MUDD_LEVELS})
      set(file ${CMAKE_BINARY_DIR}/levels/${op}_${level}.cc)
      file(CONFIGURE OUTPUT ${file} CONTENT "#include \"mudd/${place}/kernel-inl.h\"\n" @ONLY)
      mudd_level_source(${level} ${file})
    endforeach()
  endif()
  foreach(level ${MUDD_LEVELS} ${MUDD_UNIT_LEVELS})
    if(EXISTS ${folder}/${level}.cc)
      mudd_level_source(${level} ${folder}/${level}.cc)
    endif()
  endforeach()
endfunction()

# Sources of one level and the flags of that level: object library <name>.
function(mudd_level_library name level)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/cpp)
  target_compile_definitions(${name} PRIVATE MUDD_ISA=${level} ${MUDD_VEC_${level}})
  set(optimize -O3)
  if(DEFINED MUDD_OPTIMIZE_${level})
    set(optimize ${MUDD_OPTIMIZE_${level}})
  endif()
  # clang rejects a throw in every template that it sees without exceptions, also where none is instantiated.
  target_compile_options(${name} PRIVATE ${optimize} -fno-math-errno -fno-trapping-math -ffp-contract=off
                         $<$<CXX_COMPILER_ID:GNU>:-fno-exceptions> -Wno-psabi
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> -Wno-uninitialized ${MUDD_FLAGS_${level}})
endfunction()

# After all add_levels calls: one object library mudd_level_<level> each. Sets MUDD_LEVEL_OBJECTS and, of the
# emulations, MUDD_EMULATION_OBJECTS.
function(mudd_finish_levels)
  set(objects "")
  set(emulations "")
  foreach(level ${MUDD_LEVELS} ${MUDD_UNIT_LEVELS})
    get_property(sources GLOBAL PROPERTY MUDD_SOURCES_${level})
    mudd_level_library(mudd_level_${level} ${level} ${sources})
    if(level MATCHES "^emu")
      list(APPEND emulations $<TARGET_OBJECTS:mudd_level_${level}>)
    else()
      list(APPEND objects $<TARGET_OBJECTS:mudd_level_${level}>)
    endif()
  endforeach()
  set(MUDD_LEVEL_OBJECTS ${objects} PARENT_SCOPE)
  set(MUDD_EMULATION_OBJECTS ${emulations} PARENT_SCOPE)
endfunction()

# Kernels of a test: <folder>/<name>-inl.h built for every level; the objects' names go into <out>.
function(mudd_test_levels folder name out)
  set(objects "")
  if(EXISTS ${folder}/${name}-inl.h)
    foreach(level ${MUDD_LEVELS})
      set(file ${CMAKE_BINARY_DIR}/levels/${name}_${level}.cc)
      file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${name}-inl.h\"\n" @ONLY)
      mudd_level_library(${name}_${level} ${level} ${file})
      target_include_directories(${name}_${level} PRIVATE ${folder})
      list(APPEND objects $<TARGET_OBJECTS:${name}_${level}>)
    endforeach()
  endif()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
