// Requirements of the MPI transport on its host, and its errors.
#pragma once

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace mudd::dist {

template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream text;
  text << "[ranks] ";
  (text << ... << parts);
  return text.str();
}

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw std::runtime_error(message(parts...));
}

// Too little shared memory, like other lack of memory: MemoryError in Python.
class NoRoom : public std::bad_alloc {
 public:
  explicit NoRoom(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// Return the folder of Open MPI's window files.
inline const char* window_folder() {
  const char* folder = std::getenv("OMPI_MCA_osc_sm_backing_directory");
  return folder ? folder : "/dev/shm";
}

inline int64_t free_bytes(const char* folder) {
  struct statvfs info;
  if (statvfs(folder, &info) != 0) return 0;
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

inline std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace mudd::dist
