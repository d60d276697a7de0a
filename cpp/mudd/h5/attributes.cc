// Attributes of the root group.
#include "mudd/h5/h5_file.h"

namespace mudd::h5 {

void DatasetFile::set_text(const std::string& name, const std::string& value) {
  const Handle type = owned(H5Tcopy(H5T_C_S1), H5Tclose, "text type");
  must(H5Tset_size(type.get(), value.size() + 1), "text length");
  must(H5Tset_cset(type.get(), H5T_CSET_UTF8), "UTF-8");
  const Handle space = owned(H5Screate(H5S_SCALAR), H5Sclose, "dataspace");
  const Handle attribute = owned(H5Acreate2(id(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT),
                                 H5Aclose, "text attribute");
  must(H5Awrite(attribute.get(), type.get(), value.c_str()), "text attribute");
}

void DatasetFile::set_number(const std::string& name, int64_t value) {
  const Handle space = owned(H5Screate(H5S_SCALAR), H5Sclose, "dataspace");
  const Handle attribute = owned(
      H5Acreate2(id(), name.c_str(), H5T_STD_I64LE, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "attribute");
  must(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), "attribute");
}

std::string DatasetFile::text(const std::string& name) const {
  const hid_t opened = H5Aopen(id(), name.c_str(), H5P_DEFAULT);
  if (opened < 0) bad("no attribute '" + name + "': " + library_error());
  const Handle attribute(opened, H5Aclose);
  const Handle type = owned(H5Aget_type(attribute.get()), H5Tclose, "text type");
  const size_t size = H5Tget_size(type.get());
  const Handle space = owned(H5Aget_space(attribute.get()), H5Sclose, "dataspace");
  // The library writes all strings of the attribute, past the end of the buffer; this project writes one.
  const bool one = H5Sget_simple_extent_npoints(space.get()) == 1;
  // For a variable-length string the library would return its own pointer; this project writes fixed lengths.
  if (!one || H5Tget_class(type.get()) != H5T_STRING || H5Tis_variable_str(type.get()) != 0 ||
      size > (size_t{1} << 20))
    bad("attribute '" + name + "' is not one text of at most 1 MiB");
  std::string value(size, '\0');
  if (H5Aread(attribute.get(), type.get(), value.data()) < 0) bad("attribute '" + name + "': " + library_error());
  return value.substr(0, value.find('\0'));
}

int64_t DatasetFile::number(const std::string& name) const {
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

}  // namespace mudd::h5
