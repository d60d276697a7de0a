#include "mudd/h5/h5_file.h"

#include <array>
#include <limits>
#include <utility>

#include "mudd/base/check.h"

namespace mudd::h5 {
namespace {

struct ElementRow {
  Element type;
  int64_t width;
  hid_t (*id)();
};

// The predefined ids are macros over variables that H5open sets, hence functions.
const std::array<ElementRow, 8> kElements = {{
    {Element::u8, 1, [] { return H5T_STD_U8LE; }},
    {Element::u16, 2, [] { return H5T_STD_U16LE; }},
    {Element::u32, 4, [] { return H5T_STD_U32LE; }},
    {Element::u64, 8, [] { return H5T_STD_U64LE; }},
    {Element::i32, 4, [] { return H5T_STD_I32LE; }},
    {Element::i64, 8, [] { return H5T_STD_I64LE; }},
    {Element::f32, 4, [] { return H5T_IEEE_F32LE; }},
    {Element::f64, 8, [] { return H5T_IEEE_F64LE; }},
}};

const ElementRow& row_of(Element type) { return kElements[static_cast<size_t>(type)]; }

// Innermost message of the library's error stack, which says most; the stack is cleared.
std::string library_error() {
  std::string text;
  H5Ewalk2(
      H5E_DEFAULT, H5E_WALK_DOWNWARD,
      [](unsigned, const H5E_error2_t* entry, void* out) -> herr_t {
        if (entry->desc != nullptr && *entry->desc != '\0') *static_cast<std::string*>(out) = entry->desc;
        return 0;
      },
      &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "no reason given" : text;
}

// Before the first use of the library: errors are not printed, ours become exceptions; and no clean-up at exit,
// which in 1.10.8 crashes the process when an earlier close failed on a full disk. Files are closed by their
// owners.
void prepare_library() {
  static const herr_t once = H5dont_atexit();
  (void)once;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Handle owned(hid_t id, Handle::Closer closer, const char* what) {
  if (id < 0) fail("h5", what, ": ", library_error());
  return Handle(id, closer);
}

void must(herr_t status, const char* what) {
  if (status < 0) fail("h5", what, ": ", library_error());
}

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

int64_t width_of(Element type) { return row_of(type).width; }

Handle& Handle::operator=(Handle&& other) noexcept {
  if (this != &other) {
    reset();
    id_ = std::exchange(other.id_, -1);
    closer_ = other.closer_;
  }
  return *this;
}

void Handle::reset() {
  if (id_ >= 0) closer_(id_);
  id_ = -1;
}

File File::create(const std::string& path) {
  prepare_library();
  const Handle access = file_access();
  const Handle creation = owned(H5Pcreate(H5P_FILE_CREATE), H5Pclose, "file creation list");
  must(H5Pset_obj_track_times(creation.get(), false), "no time stamps");
  const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_EXCL, creation.get(), access.get());
  if (id < 0) fail("h5", "path: cannot create '", path, "': ", library_error());
  return File(path, Handle(id, H5Fclose));
}

File File::open(const std::string& path) {
  prepare_library();
  const Handle access = file_access();
  const hid_t id = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get());
  if (id < 0) throw FormatError(path, 0, "not a readable HDF5 file: " + library_error());
  return File(path, Handle(id, H5Fclose));
}

void File::bad(const std::string& reason) const { throw FormatError(path_, 0, reason); }

hid_t File::id() const {
  if (file_.get() < 0) throw StateError("[h5] file '" + path_ + "' is closed");
  return file_.get();
}

// Groups made by the library on the way to a dataset would carry time stamps, so we make them.
void File::make_group(const std::string& name) {
  if (has(name)) return;
  const Handle creation = owned(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, "group list");
  must(H5Pset_obj_track_times(creation.get(), false), "no time stamps");
  owned(H5Gcreate2(id(), name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT), H5Gclose, "group");
}

void File::create_dataset(const std::string& name, Element type, int64_t count) {
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
      H5Dcreate2(id(), name.c_str(), row_of(type).id(), space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT);
  if (dataset < 0) fail("h5", "dataset '", name, "' of '", path_, "': ", library_error());
  H5Dclose(dataset);
}

Handle File::dataset(const std::string& name) const {
  const hid_t dataset = H5Dopen2(id(), name.c_str(), H5P_DEFAULT);
  if (dataset < 0) bad("no dataset '" + name + "': " + library_error());
  return Handle(dataset, H5Dclose);
}

void File::transfer(const std::string& name, Element type, int64_t first, int64_t count, void* in,
                    const void* out) const {
  const Place where = in != nullptr ? stored(name) : place(name);
  check(where.type == type, "h5", "dataset '", name, "': the element types of file and memory differ");
  check(first >= 0 && count >= 0 && first <= where.count - count, "h5", "dataset '", name,
        "': expected a range in [0, ", where.count, "), got ", count, " from ", first);
  if (count == 0) return;
  const Handle data = dataset(name);
  const Handle in_file = owned(H5Dget_space(data.get()), H5Sclose, "dataspace");
  const hsize_t start = static_cast<hsize_t>(first), length = static_cast<hsize_t>(count);
  must(H5Sselect_hyperslab(in_file.get(), H5S_SELECT_SET, &start, nullptr, &length, nullptr), "range");
  const Handle in_memory = line_of(count);
  const hid_t element = row_of(type).id();
  const herr_t status = in != nullptr
                            ? H5Dread(data.get(), element, in_memory.get(), in_file.get(), H5P_DEFAULT, in)
                            : H5Dwrite(data.get(), element, in_memory.get(), in_file.get(), H5P_DEFAULT, out);
  if (status >= 0) return;
  if (in == nullptr) throw WriteError("[h5] cannot write to '" + path_ + "': " + library_error());
  bad("dataset '" + name + "' cannot be read: " + library_error());
}

void File::write(const std::string& name, Element type, int64_t first, int64_t count, const void* data) {
  transfer(name, type, first, count, nullptr, data);
}

void File::read(const std::string& name, Element type, int64_t first, int64_t count, void* data) const {
  transfer(name, type, first, count, data, nullptr);
}

Place File::place(const std::string& name) const {
  const Handle data = dataset(name);
  const Handle space = owned(H5Dget_space(data.get()), H5Sclose, "dataspace");
  const Handle element = owned(H5Dget_type(data.get()), H5Tclose, "element type");
  const Handle creation = owned(H5Dget_create_plist(data.get()), H5Pclose, "dataset list");
  if (H5Sget_simple_extent_ndims(space.get()) != 1) bad("dataset '" + name + "' does not have one dimension");
  Place where;
  where.count = H5Sget_simple_extent_npoints(space.get());
  bool known = false;
  for (const ElementRow& row : kElements) {
    if (H5Tequal(element.get(), row.id()) > 0) {
      where.type = row.type;
      known = true;
    }
  }
  if (!known) bad("dataset '" + name + "' has an element type we do not read");
  const haddr_t offset = H5Dget_offset(data.get());
  const bool contiguous = H5Pget_layout(creation.get()) == H5D_CONTIGUOUS && offset != HADDR_UNDEF;
  H5Eclear2(H5E_DEFAULT);  // an undefined offset leaves a message behind
  where.offset = contiguous ? static_cast<int64_t>(offset) : -1;
  return where;
}

Place File::stored(const std::string& name) const {
  const Place where = place(name);
  if (where.count == 0) return where;
  if (where.offset < 0) bad("dataset '" + name + "' is not contiguous in the file");
  hsize_t bytes = 0;
  must(H5Fget_filesize(id(), &bytes), "file size");
  const auto left = static_cast<int64_t>(bytes) - where.offset;
  if (left < 0 || where.count > left / width_of(where.type)) bad("dataset '" + name + "' ends beyond the file");
  return where;
}

bool File::has(const std::string& name) const {
  const bool found = H5Oexists_by_name(id(), name.c_str(), H5P_DEFAULT) > 0;
  H5Eclear2(H5E_DEFAULT);
  return found;
}

void File::set_text(const std::string& name, const std::string& value) {
  const Handle type = owned(H5Tcopy(H5T_C_S1), H5Tclose, "text type");
  must(H5Tset_size(type.get(), value.size() + 1), "text length");
  must(H5Tset_cset(type.get(), H5T_CSET_UTF8), "UTF-8");
  const Handle space = owned(H5Screate(H5S_SCALAR), H5Sclose, "dataspace");
  const Handle attribute = owned(H5Acreate2(id(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                 H5Aclose, "text attribute");
  must(H5Awrite(attribute.get(), type.get(), value.c_str()), "text attribute");
}

void File::set_number(const std::string& name, int64_t value) {
  const Handle space = owned(H5Screate(H5S_SCALAR), H5Sclose, "dataspace");
  const Handle attribute = owned(
      H5Acreate2(id(), name.c_str(), H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "attribute");
  must(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), "attribute");
}

std::string File::text(const std::string& name) const {
  const hid_t opened = H5Aopen(id(), name.c_str(), H5P_DEFAULT);
  if (opened < 0) bad("no attribute '" + name + "': " + library_error());
  const Handle attribute(opened, H5Aclose);
  const Handle type = owned(H5Aget_type(attribute.get()), H5Tclose, "text type");
  const size_t size = H5Tget_size(type.get());
  const Handle space = owned(H5Aget_space(attribute.get()), H5Sclose, "dataspace");
  // The library writes as many strings as the attribute has, past the end of our buffer; ours have one.
  const bool one = H5Sget_simple_extent_npoints(space.get()) == 1;
  // A variable-length text would hand us a pointer of the library; ours have a fixed length.
  if (!one || H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 ||
      size > (size_t{1} << 20))
    bad("attribute '" + name + "' is not one text of at most 1 MiB");
  std::string value(size, '\0');
  if (H5Aread(attribute.get(), type.get(), value.data()) < 0) bad("attribute '" + name + "': " + library_error());
  return value.substr(0, value.find('\0'));
}

int64_t File::number(const std::string& name) const {
  const hid_t opened = H5Aopen(id(), name.c_str(), H5P_DEFAULT);
  if (opened < 0) bad("no attribute '" + name + "': " + library_error());
  const Handle attribute(opened, H5Aclose);
  const Handle type = owned(H5Aget_type(attribute.get()), H5Tclose, "number type");
  const Handle space = owned(H5Aget_space(attribute.get()), H5Sclose, "dataspace");
  if (H5Tget_class(type.get()) != H5T_INTEGER || H5Sget_simple_extent_npoints(space.get()) != 1)
    bad("attribute '" + name + "' is not one whole number");
  int64_t value = 0;
  if (H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0) bad("attribute '" + name + "': " + library_error());
  return value;
}

void File::close() {
  if (file_.get() < 0) return;
  const bool flushed = H5Fflush(file_.get(), H5F_SCOPE_GLOBAL) >= 0;
  const std::string reason = flushed ? "" : library_error();
  const bool closed = H5Fclose(file_.release()) >= 0;
  if (!flushed || !closed)
    throw WriteError("[h5] cannot write to '" + path_ + "': " + (flushed ? library_error() : reason));
}

Place dataset_offset(const std::string& path, const std::string& dataset) {
  const Place where = File::open(path).place(dataset);
  if (where.offset < 0) throw FormatError(path, 0, "dataset '" + dataset + "' is not contiguous in the file");
  return where;
}

}  // namespace mudd::h5
