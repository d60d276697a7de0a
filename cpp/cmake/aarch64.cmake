# Cross-compilation for 64-bit ARM (Debian: g++-aarch64-linux-gnu, or g++-12-aarch64-linux-gnu), to compare its bits with
# those of x86-64 under qemu-user: tests/aarch64.py. Levels portable and neon.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
find_program(MUDD_ARM_CXX NAMES aarch64-linux-gnu-g++ aarch64-linux-gnu-g++-12 REQUIRED)
string(REPLACE "linux-gnu-g++" "linux-gnu-gcc" MUDD_ARM_CC "${MUDD_ARM_CXX}")
set(CMAKE_C_COMPILER ${MUDD_ARM_CC})
set(CMAKE_CXX_COMPILER ${MUDD_ARM_CXX})
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
