// Durable files and their checksums.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bind/io_buffers.h"
#include "mudd/io/atomic_folder.h"
#include "mudd/io/crc32c.h"
#include "mudd/io/file_ops.h"

namespace py = pybind11;

namespace {

using mudd::bind::bytes_of;
using mudd::bind::contiguous;
using mudd::io::BoundedReader;
using mudd::io::CheckedRange;
using mudd::io::files;
using NoGil = py::call_guard<py::gil_scoped_release>;

void translate(std::exception_ptr raised) {
  try {
    if (raised) std::rethrow_exception(raised);
  } catch (const mudd::io::IoError& e) {
    // Python chooses FileNotFoundError or another subclass for OSError(errno, text, file).
    const py::object error = py::reinterpret_borrow<py::object>(PyExc_OSError)(e.code(), e.what(), e.path());
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  }
}

// (label, begin, end, checksums of the blocks)
using PyRange = std::tuple<std::string, std::uint64_t, std::uint64_t, std::vector<std::uint32_t>>;

CheckedRange range_of(PyRange range) {
  auto& [label, begin, end, crcs] = range;
  return {std::move(label), begin, end, std::move(crcs)};
}

void verify_file(const std::string& path, std::uint64_t bytes, std::uint32_t crc, std::vector<PyRange> ranges) {
  std::vector<CheckedRange> checked;
  checked.reserve(ranges.size());
  for (PyRange& range : ranges) checked.push_back(range_of(std::move(range)));
  mudd::io::verify_file(files(), path, bytes, crc, std::move(checked));
}

void read_checked(const std::string& path, PyRange range, const py::buffer& out, std::uint64_t skip) {
  const py::buffer_info info = contiguous(out, "read_checked", true);
  const CheckedRange checked = range_of(std::move(range));
  const py::gil_scoped_release release;
  const BoundedReader reader(files(), path);
  mudd::io::read_checked_part(reader, checked, skip, bytes_of(info), info.ptr);
}

void bind_checksums(py::module_& m) {
  m.def(
      "crc32c",
      [](const py::buffer& data, std::uint32_t before) {
        const py::buffer_info info = contiguous(data, "crc32c", false);
        const py::gil_scoped_release release;
        return mudd::io::crc32c(info.ptr, bytes_of(info), before);
      },
      py::arg("data"), py::arg("before") = 0,
      "CRC-32C of a buffer's bytes; before: the checksum of the preceding bytes.");
  m.def("crc32c_combine", &mudd::io::crc32c_combine, py::arg("crc_a"), py::arg("crc_b"), py::arg("bytes_b"),
        "CRC-32C of A followed by B from both checksums and the length of B.");
  m.def(
      "crc32c_blocks",
      [](const py::buffer& data) {
        const py::buffer_info info = contiguous(data, "crc32c_blocks", false);
        const py::gil_scoped_release release;
        return mudd::io::block_crcs(info.ptr, bytes_of(info));
      },
      py::arg("data"), "CRC-32C of each block of 1 MiB, the last one shorter.");
}

void bind_files(py::module_& m) {
  m.def(
      "read_file",
      [](const std::string& path, std::uint64_t limit) {
        std::string bytes;
        {
          const py::gil_scoped_release release;
          bytes = mudd::io::read_file(files(), path, limit);
        }
        return py::bytes(bytes);
      },
      py::arg("path"), py::arg("limit"), "A whole file of at most `limit` bytes.");
  m.def(
      "replace_file",
      [](const std::string& path, const py::bytes& data) {
        const std::string_view view = data;
        const py::gil_scoped_release release;
        mudd::io::replace_file(files(), path, view.data(), view.size());
      },
      py::arg("path"), py::arg("data"), "Writes a file so that a crash leaves the old one or the new one.");
  m.def(
      "make_folders", [](const std::string& path) { mudd::io::make_folders(files(), path); }, py::arg("path"),
      NoGil(), "Makes a folder and those above it that are missing, durably.");
  m.def(
      "list_folder",
      [](const std::string& path) {
        std::vector<std::pair<std::string, bool>> out;
        for (const mudd::io::DirEntry& entry : files().list(path)) out.emplace_back(entry.name, entry.is_dir);
        return out;
      },
      py::arg("path"), "(name, is a folder) of each entry, by name.");
  m.def(
      "free_space", [](const std::string& path) { return files().free_space(path); }, py::arg("path"),
      "Bytes this user may still write there.");
  m.def(
      "remove_dead_temporaries",
      [](const std::string& parent, const std::string& name) {
        return mudd::io::remove_dead_temporaries(files(), parent, name);
      },
      py::arg("parent"), py::arg("name") = "", NoGil(),
      "Remove temporary folders of dead writers, with a name only of that folder; return their names.");
  m.def(
      "restore_set_aside", [](const std::string& parent) { mudd::io::restore_set_aside(files(), parent); },
      py::arg("parent"), NoGil(), "Finish replacements of folders that a crash interrupted.");
  m.def(
      "remove_committed",
      [](const std::string& parent, const std::string& name, const std::string& id) {
        mudd::io::remove_committed(files(), parent, name, id);
      },
      py::arg("parent"), py::arg("name"), py::arg("id"), NoGil(),
      "Remove a folder so that no half of it ever appears under its name.");
  m.def(
      "verify_file", &verify_file, py::arg("path"), py::arg("bytes"), py::arg("crc"), py::arg("ranges"), NoGil(),
      "Read a whole file and compare size, block checksums and file checksum; FormatError names the difference.");
  m.def("read_checked", &read_checked, py::arg("path"), py::arg("range"), py::arg("out"), py::arg("skip") = 0,
        "Read len(out) bytes of a range, from its byte `skip` on, into a writable buffer; verify the blocks' "
        "checksums.");
}

}  // namespace

void bind_io(py::module_& m) {
  py::register_exception_translator(translate);
  bind_checksums(m);
  bind_files(m);
}
