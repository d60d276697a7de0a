# Machines that the core cannot be built for. Also a script, for its test: cmake -D... -P cpp/cmake/machine.cmake
if(CMAKE_SIZEOF_VOID_P LESS 8)
  message(FATAL_ERROR "mudd_core: expected a compiler for a 64-bit system, got one for 32 bits. Install a 64-bit Linux: on "
                      "a Raspberry Pi, the arm64 version of its system.")
endif()
if(CMAKE_CXX_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  message(FATAL_ERROR "mudd_core: expected a little-endian system, got a big-endian one. All files of a run are "
                      "little-endian. Use x86-64 or 64-bit ARM.")
endif()
