// An owner of HDF5 files over the C API: contiguous one-dimensional datasets, attributes, and the byte offset
// of a dataset, at which the core reads the same bytes without HDF5. Only the module _h5 is built from this
// folder.
//
// Files are written with format bounds v110..v110 and without time stamps, so equal contents give equal bytes, and
// h5py reads them. Datasets of at least 4 KiB start at multiples of 4 KiB. HDF5 files are trusted input: the
// library itself is not hardened against hostile ones. One thread at a time.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mudd/h5/library.h"

namespace mudd::h5 {

// The file system refused a write; OSError in Python.
class WriteError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The position of a contiguous dataset's bytes in the file.
struct DatasetPlace {
  int64_t offset = 0;  // bytes from the start of the file
  int64_t count = 0;   // elements
  Element type = Element::u8;
};

class DatasetFile {
 public:
  // Create a new file (Error if one exists), or open one for reading (FormatError if it is no HDF5 file or
  // truncated).
  static DatasetFile create(const std::string& path);
  static DatasetFile open(const std::string& path);

  // Create a contiguous dataset of `count` elements with allocated space, and its missing groups. Created files
  // only. Every element must be written: others have no defined value.
  void create_dataset(const std::string& name, Element type, int64_t count);
  // Copy elements [first, first + count) of a dataset, from or to memory of the same element type.
  void write(const std::string& name, Element type, int64_t first, int64_t count, const void* data);
  void read(const std::string& name, Element type, int64_t first, int64_t count, void* data) const;

  // Return type and length of a dataset; offset is -1 unless it is contiguous and its space is allocated.
  DatasetPlace place(const std::string& name) const;
  // The same for a dataset whose bytes are all in the file; FormatError for other datasets, which may claim any
  // size.
  DatasetPlace stored(const std::string& name) const;
  bool has(const std::string& name) const;

  // Attributes of the root group: strings and integers.
  void set_text(const std::string& name, const std::string& value);
  void set_number(const std::string& name, int64_t value);
  std::string text(const std::string& name) const;
  int64_t number(const std::string& name) const;

  const std::string& path() const { return path_; }

  // Write buffered data and close; errors are reported. Later calls fail.
  void close();

 private:
  DatasetFile(std::string path, Handle file) : path_(std::move(path)), file_(std::move(file)) {}
  void make_group(const std::string& name);
  Handle dataset(const std::string& name) const;
  void transfer(const std::string& name, Element type, int64_t first, int64_t count, void* in,
                const void* out) const;
  [[noreturn]] void bad(const std::string& reason) const;
  hid_t id() const;

  std::string path_;
  Handle file_;
};

// Return offset, length and type of a contiguous dataset. FormatError if it is not contiguous or has no space
// in the file.
DatasetPlace dataset_offset(const std::string& path, const std::string& dataset);

}  // namespace mudd::h5
