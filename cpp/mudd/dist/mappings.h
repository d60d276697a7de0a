// Mappings: a second mapping of the pages of a shared window.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "mudd/dist/mpi_host.h"

namespace mudd::dist {

// Separate mappings of a window's pages: they live until their last reader is gone, even after the window and
// MPI; their bytes are then free again.
class Mappings {
 public:
  Mappings(std::shared_ptr<std::atomic<int64_t>> room, int64_t bytes) : room_(std::move(room)), bytes_(bytes) {
    *room_ -= bytes_;
  }
  ~Mappings() {
    for (const auto& [memory, bytes] : mapped_) munmap(memory, bytes);
    *room_ += bytes_;
  }
  Mappings(const Mappings&) = delete;
  Mappings& operator=(const Mappings&) = delete;

  std::byte* add(void* part, int64_t bytes) {
    if (bytes == 0) return nullptr;
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), at = reinterpret_cast<uintptr_t>(part);
    const uintptr_t before = at % page;
    const size_t whole = (static_cast<size_t>(bytes) + before + page - 1) / page * page;
    // With an old size of 0, mremap maps shared pages a second time.
    void* memory = mremap(reinterpret_cast<void*>(at - before), 0, whole, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED)
      throw NoRoom(message("shared memory: expected a second mapping of ", whole, " bytes, got '", strerror(errno),
                           "', as under qemu-user; set dist.node=rank"));
    mapped_.emplace_back(memory, whole);
    return static_cast<std::byte*>(memory) + before;
  }

 private:
  std::shared_ptr<std::atomic<int64_t>> room_;
  int64_t bytes_;
  std::vector<std::pair<void*, size_t>> mapped_;
};

}  // namespace mudd::dist
