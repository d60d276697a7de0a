# Cross-compilation for 64-bit ARM (Debian: g++-aarch64-linux-gnu), to compare its bits with those of x86-64 under
# qemu-user: tests/aarch64.py. Kernels are those of the portable level.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
