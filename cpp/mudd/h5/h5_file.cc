#include "mudd/h5/h5_file.h"

#include "mudd/base/check.h"

namespace mudd::h5 {
namespace {

Handle file_access() {
  Handle access = owned(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "file access list");
  must(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110), "format bounds v110");
  must(H5Pset_alignment(access.get(), 4096, 4096), "alignment");
  return access;
}

Handle line_of(int64_t count) {
  const hsize_t length = static_cast<hsize_t>(count);
  return owned(H5Screate_simple(1, &length, nullptr), H5Sclose, "dataspace");
}

}  // namespace

DatasetFile DatasetFile::create(const std::string& path) {
  prepare_library();
  const Handle access = file_access();
  const Handle creation = owned(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "file creation list");
  must(H5Pset_obj_track_times(creation.get(), false), "no time stamps");
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation.get(), access.get());
  if (id < 0) fail("h5", "path: cannot create '", path, "': ", library_error());
  return DatasetFile(path, Handle(id, H5Fclose));
}

DatasetFile DatasetFile::open(const std::string& path) {
  prepare_library();
  const Handle access = file_access();
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get());
  if (id < 0) throw FormatError(path, 0, "not a readable HDF5 file: " + library_error());
  return DatasetFile(path, Handle(id, H5Fclose));
}

void DatasetFile::bad(const std::string& reason) const { throw FormatError(path_, 0, reason); }

hid_t DatasetFile::id() const {
  if (file_.get() < 0) throw StateError("[h5] file '" + path_ + "' is closed");
  return file_.get();
}

// Create groups explicitly: the library would add time stamps to groups that it creates for a dataset.
void DatasetFile::make_group(const std::string& name) {
  if (has(name)) return;
  const Handle creation = owned(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "group list");
  must(H5Pset_obj_track_times(creation.get(), false), "no time stamps");
  owned(H5Gcreate2(id(), name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), H5Gclose, "group");
}

void DatasetFile::create_dataset(const std::string& name, Element type, int64_t count) {
  check(count >= 0, "h5", "count: expected at least 0, got ", count);
  for (size_t slash = name.find('/', 1); slash != std::string::npos; slash = name.find('/', slash + 1))
    make_group(name.substr(0, slash));
  const Handle creation = owned(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, "dataset list");
  must(H5Pset_layout(creation.get(), H5D_CONTIGUOUS), "contiguous layout");
  must(H5Pset_alloc_time(creation.get(), H5D_ALLOC_TIME_EARLY), "early allocation");
  must(H5Pset_fill_time(creation.get(), H5D_FILL_TIME_NEVER), "no fill");
  must(H5Pset_obj_track_times(creation.get(), false), "no time stamps");
  const Handle space = line_of(count);
  const hid_t dataset =
      H5Dcreate2(id(), name.c_str(), type_of(type), space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT);
  if (dataset < 0) fail("h5", "dataset '", name, "' of '", path_, "': ", library_error());
  H5Dclose(dataset);
}

Handle DatasetFile::dataset(const std::string& name) const {
  const hid_t dataset = H5Dopen2(id(), name.c_str(), H5P_DEFAULT);
  if (dataset < 0) bad("no dataset '" + name + "': " + library_error());
  return Handle(dataset, H5Dclose);
}

void DatasetFile::transfer(const std::string& name, Element type, int64_t first, int64_t count, void* in,
                           const void* out) const {
  const DatasetPlace where = in != nullptr ? stored(name) : place(name);
  check(where.type == type, "h5", "dataset '", name, "': the element types of file and memory differ");
  check(first >= 0 && count >= 0 && first <= where.count - count, "h5", "dataset '", name,
        "': expected a range in [0, ", where.count, "), got ", count, " from ", first);
  if (count == 0) return;
  const Handle data = dataset(name);
  const Handle in_file = owned(H5Dget_space(data.get()), H5Sclose, "dataspace");
  const hsize_t start = static_cast<hsize_t>(first), length = static_cast<hsize_t>(count);
  must(H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, &start, nullptr, &length, nullptr), "range");
  const Handle in_memory = line_of(count);
  const hid_t element = type_of(type);
  const herr_t status = in != nullptr
                            ? H5Dread(data.get(), element, in_memory.get(), in_file.get(), H5P_DEFAULT, in)
                            : H5Dwrite(data.get(), element, in_memory.get(), in_file.get(), H5P_DEFAULT, out);
  if (status >= 0) return;
  if (in == nullptr) throw WriteError("[h5] cannot write to '" + path_ + "': " + library_error());
  bad("dataset '" + name + "' cannot be read: " + library_error());
}

void DatasetFile::write(const std::string& name, Element type, int64_t first, int64_t count, const void* data) {
  transfer(name, type, first, count, nullptr, data);
}

void DatasetFile::read(const std::string& name, Element type, int64_t first, int64_t count, void* data) const {
  transfer(name, type, first, count, data, nullptr);
}

DatasetPlace DatasetFile::place(const std::string& name) const {
  const Handle data = dataset(name);
  const Handle space = owned(H5Dget_space(data.get()), H5Sclose, "dataspace");
  const Handle element = owned(H5Dget_type(data.get()), H5Tclose, "element type");
  const Handle creation = owned(H5Dget_create_plist(data.get()), H5Pclose, "dataset list");
  if (H5Sget_simple_extent_ndims(space.get()) != 1) bad("dataset '" + name + "' does not have one dimension");
  DatasetPlace where;
  where.count = H5Sget_simple_extent_npoints(space.get());
  const std::optional<Element> type = element_of(element.get());
  if (!type) bad("dataset '" + name + "' has an element type we do not read");
  where.type = *type;
  const haddr_t offset = H5Dget_offset(data.get());
  const bool contiguous = H5Pget_layout(creation.get()) == H5D_CONTIGUOUS && offset != HADDR_UNDEF;
  H5Eclear2(H5E_DEFAULT);  // an undefined offset leaves a message on the error stack
  where.offset = contiguous ? static_cast<int64_t>(offset) : -1;
  return where;
}

DatasetPlace DatasetFile::stored(const std::string& name) const {
  const DatasetPlace where = place(name);
  if (where.count == 0) return where;
  if (where.offset < 0) bad("dataset '" + name + "' is not contiguous in the file");
  hsize_t bytes = 0;
  must(H5Fget_filesize(id(), &bytes), "file size");
  const auto left = static_cast<int64_t>(bytes) - where.offset;
  if (left < 0 || where.count > left / width_of(where.type)) bad("dataset '" + name + "' ends beyond the file");
  return where;
}

bool DatasetFile::has(const std::string& name) const {
  const bool found = H5Oexists_by_name(id(), name.c_str(), H5P_DEFAULT) > 0;
  H5Eclear2(H5E_DEFAULT);
  return found;
}

void DatasetFile::close() {
  if (file_.get() < 0) return;
  const bool flushed = H5Fflush(file_.get(), H5F_SCOPE_GLOBAL) >= 0;
  const std::string reason = flushed ? "" : library_error();
  const bool closed = H5Fclose(file_.release()) >= 0;
  if (!flushed || !closed)
    throw WriteError("[h5] cannot write to '" + path_ + "': " + (flushed ? library_error() : reason));
}

DatasetPlace dataset_offset(const std::string& path, const std::string& dataset) {
  const DatasetPlace where = DatasetFile::open(path).place(dataset);
  if (where.offset < 0) throw FormatError(path, 0, "dataset '" + dataset + "' is not contiguous in the file");
  return where;
}

}  // namespace mudd::h5
