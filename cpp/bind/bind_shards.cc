// Safetensors files, and the folders that are committed with them.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <memory>
#include <optional>

#include "bind/class.h"
#include "bind/io_buffers.h"
#include "mudd/base/check.h"
#include "mudd/io/atomic_folder.h"
#include "mudd/io/file_ops.h"
#include "mudd/io/live_bytes.h"

namespace py = pybind11;

namespace {

using mudd::check;
using mudd::bind::bytes_of;
using mudd::bind::contiguous;
using mudd::io::AtomicFolder;
using mudd::io::files;
using mudd::io::LiveBytes;
using mudd::io::Metadata;
using mudd::io::SafetensorsFile;
using mudd::io::ShardRecord;
using mudd::io::TensorInfo;
using mudd::io::TensorSource;
using NoGil = py::call_guard<py::gil_scoped_release>;

// (name, dtype, shape, buffer, or a function that returns it when its bytes are written)
using PyTensor = std::tuple<std::string, std::string, std::vector<std::uint64_t>, py::object>;

std::uint64_t bytes_in(const std::string& dtype, const std::vector<std::uint64_t>& shape) {
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
      source.bytes = bytes_in(dtype, shape);
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

}  // namespace

void bind_shards(py::module_& m) {
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
