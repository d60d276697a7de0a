// Durable files: checksums, safetensors, atomic folders.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <memory>
#include <optional>

#include "bind/class.h"
#include "mudd/base/check.h"
#include "mudd/io/atomic_folder.h"
#include "mudd/io/crc32c.h"
#include "mudd/io/file_ops.h"
#include "mudd/io/live_bytes.h"

namespace py = pybind11;

namespace {

using mudd::check;
using mudd::io::AtomicFolder;
using mudd::io::BoundedReader;
using mudd::io::CheckedRange;
using mudd::io::FileOps;
using mudd::io::files;
using mudd::io::LiveBytes;
using mudd::io::Metadata;
using mudd::io::SafetensorsFile;
using mudd::io::ShardRecord;
using mudd::io::TensorInfo;
using mudd::io::TensorSource;
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

py::buffer_info contiguous(const py::buffer& buffer, const char* where, bool writable) {
  py::buffer_info info = buffer.request(writable);
  if (info.size == 0) return info;
  py::ssize_t expected = info.itemsize;
  for (py::ssize_t i = info.ndim - 1; i >= 0; --i) {
    const auto k = static_cast<std::size_t>(i);
    check(info.shape[k] <= 1 || info.strides[k] == expected, where, "data: expected a C-contiguous buffer");
    expected *= info.shape[k];
  }
  return info;
}

std::uint64_t bytes_of(const py::buffer_info& info) {
  return static_cast<std::uint64_t>(info.size) * static_cast<std::uint64_t>(info.itemsize);
}

// (name, dtype, shape, buffer, or a function that returns it when its bytes are written)
using PyTensor = std::tuple<std::string, std::string, std::vector<std::uint64_t>, py::object>;

std::uint64_t bytes_of(const std::string& dtype, const std::vector<std::uint64_t>& shape) {
  const mudd::io::Dtype* known = mudd::io::find_dtype(dtype);
  std::uint64_t bytes = known == nullptr ? 0 : known->width;  // the writer rejects unknown dtypes and large sizes
  for (const std::uint64_t size : shape) bytes *= size;
  return bytes;
}

template <typename Write>  // called with the sources
ShardRecord with_sources(const std::vector<PyTensor>& tensors, Write&& write) {
  std::vector<py::buffer_info> held;  // keeps every buffer exported, so that it cannot be resized
  py::buffer_info made;               // the buffer of the last called function
  std::vector<TensorSource> sources;
  held.reserve(tensors.size());
  for (const auto& [name, dtype, shape, data] : tensors) {
    TensorSource source{name, dtype, shape};
    if (py::isinstance<py::buffer>(data)) {
      held.push_back(contiguous(py::buffer(data), "checkpoint", false));
      source.data = held.back().ptr;
      source.bytes = bytes_of(held.back());
    } else {
      source.bytes = bytes_of(dtype, shape);
      source.make = [&made, &name = name, &data = data, bytes = source.bytes]() -> const void* {
        const py::gil_scoped_acquire acquire;
        made = py::buffer_info();
        made = contiguous(py::buffer(data()), "checkpoint", false);
        check(bytes_of(made) == bytes, "checkpoint", "tensor ", name, ": expected ", bytes, " bytes, got ",
              bytes_of(made));
        return made.ptr;
      };
    }
    sources.push_back(std::move(source));
  }
  const py::gil_scoped_release release;
  return write(sources);
}

ShardRecord add_shard(AtomicFolder& folder, const std::string& file, const std::vector<PyTensor>& tensors,
                      const Metadata& metadata) {
  return with_sources(tensors, [&](const auto& sources) { return folder.add_shard(file, sources, metadata); });
}

// live: reads the bytes of all tensors; null: they are read from their own memory.
ShardRecord write_shard(const std::string& folder, const std::string& file, const std::vector<PyTensor>& tensors,
                        const Metadata& metadata, const std::optional<std::shared_ptr<LiveBytes>>& reader) {
  LiveBytes* live = reader ? reader->get() : nullptr;
  return with_sources(tensors, [&](std::vector<TensorSource>& sources) {
    for (TensorSource& source : sources)
      if (live) source.read = [live](void* to, std::uint64_t bytes) { live->read(to, bytes); };
    return mudd::io::write_shard_into(files(), folder, file, sources, metadata);
  });
}

// The arrays must live until end().
void lend_live(LiveBytes& live, const std::vector<py::buffer>& arrays) {
  std::vector<std::span<const std::byte>> pieces;
  pieces.reserve(arrays.size());
  for (const py::buffer& array : arrays) {
    const py::buffer_info info = contiguous(array, "checkpoint", false);
    pieces.emplace_back(static_cast<const std::byte*>(info.ptr), bytes_of(info));
  }
  live.lend(std::move(pieces));
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

void read_tensor(const SafetensorsFile& file, std::size_t index, const py::buffer& out) {
  check(index < file.tensors().size(), "read_tensor", "index: expected one below ", file.tensors().size(),
        ", got ", index);
  const TensorInfo& tensor = file.tensors()[index];
  const py::buffer_info info = contiguous(out, "read_tensor", true);
  check(tensor.end - tensor.begin == bytes_of(info), "read_tensor", "out: expected ", tensor.end - tensor.begin,
        " bytes, got ", bytes_of(info));
  const py::gil_scoped_release release;
  file.reader().read(tensor.begin, info.ptr, tensor.end - tensor.begin, "the tensor");
}

using SliceRows = py::typing::List<py::typing::Tuple<py::int_, py::int_, py::typing::List<py::int_>>>;

SliceRows slices_of(const ShardRecord& record) {
  SliceRows out;
  for (const ShardRecord::Slice& slice : record.slices)
    out.append(py::make_tuple(slice.begin, slice.end, slice.crcs));
  return out;
}

using TensorRows = py::typing::List<
    py::typing::Tuple<py::str, py::str, py::typing::Tuple<py::int_, py::ellipsis>, py::int_, py::int_>>;

TensorRows tensors_of(const SafetensorsFile& file) {
  TensorRows out;
  for (const TensorInfo& t : file.tensors()) {
    out.append(py::make_tuple(t.name, py::str(t.dtype.data(), t.dtype.size()), py::tuple(py::cast(t.shape)),
                              t.begin, t.end));
  }
  return out;
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

void bind_folder(py::module_& m) {
  mudd::bind::Class<ShardRecord>(m, "ShardRecord", "The sizes, places and checksums of a written file.")
      .def_readonly("bytes", &ShardRecord::bytes)
      .def_readonly("crc", &ShardRecord::crc)
      .def_property_readonly("slices", &slices_of,
                             "(begin, end, block checksums) of each tensor, in order given.");
  mudd::bind::Class<LiveBytes, std::shared_ptr<LiveBytes>>(
      m, "LiveBytes", "Memory that a save reads while a run continues; see io/live_bytes.h.")
      .def(py::init([](std::uint64_t room) { return std::make_shared<LiveBytes>(room); }), py::arg("room"))
      .def("lend", &lend_live, py::arg("arrays"),
           "Start with these arrays, in the order in which write_shard reads them; keep them until end().")
      .def("end", &LiveBytes::end, NoGil(), "Read nothing more.")
      .def("release", &LiveBytes::release, NoGil(),
           "Return when the arrays may change: copy up to `room` bytes, and wait for the rest to be written.")
      .def_property_readonly("seconds", &LiveBytes::seconds, "The seconds that `release` has taken since `lend`.");
  m.def(
      "write_shard", &write_shard, py::arg("folder"), py::arg("file"), py::arg("tensors"), py::arg("metadata"),
      py::arg("live") = py::none(),
      "Writes and syncs a safetensors file in a folder that an AtomicFolder of another process holds. live: read "
      "the tensors' bytes through it, in the order of its arrays.");
  mudd::bind::Class<AtomicFolder>(m, "AtomicFolder",
                                  "A folder that appears whole or not at all; see io/atomic_folder.h.")
      .def(py::init([](const std::string& parent, const std::string& name, const std::string& id) {
             return std::make_unique<AtomicFolder>(files(), parent, name, id);
           }),
           py::arg("parent"), py::arg("name"), py::arg("id"))
      .def("add_shard", &add_shard, py::arg("file"), py::arg("tensors"), py::arg("metadata"),
           "Writes (name, dtype, shape, buffer) tensors to one safetensors file and syncs it; no copies. In place "
           "of a "
           "buffer a function may give it when its bytes are written.")
      .def("seal", &AtomicFolder::seal, py::arg("manifest_file"), py::arg("manifest"), NoGil(),
           "Writes the manifest and syncs; the folder keeps its temporary name.")
      .def("replace", &AtomicFolder::replace, NoGil(),
           "Puts the sealed folder in the place of a committed one, without an instant where neither is there.")
      .def("close", &AtomicFolder::close, NoGil(), "Removes the folder unless it is committed.")
      .def_property_readonly("temporary", &AtomicFolder::temporary, "Path of the folder until it is committed.")
      .def("commit", &AtomicFolder::commit, py::arg("manifest_file"), py::arg("manifest"), NoGil(),
           "Writes the manifest, syncs, renames to the final name, syncs the parent.");
  mudd::bind::Class<SafetensorsFile>(m, "SafetensorsFile",
                                     "Header of a safetensors file, checked; tensors on demand.")
      .def(py::init([](const std::string& path) { return std::make_unique<SafetensorsFile>(files(), path); }),
           py::arg("path"))
      .def_property_readonly("metadata",
                             [](const SafetensorsFile& file) { return py::dict(py::cast(file.metadata())); })
      .def("tensors", &tensors_of, "(name, dtype, shape, begin, end) of each tensor, in the order of their bytes.")
      .def("read_tensor", &read_tensor, py::arg("index"), py::arg("out"), "Fills a writable buffer of its size.");
}

}  // namespace

void bind_io(py::module_& m) {
  py::register_exception_translator(translate);
  bind_checksums(m);
  bind_files(m);
  bind_folder(m);
}
