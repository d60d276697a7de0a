// A token cache through the wrapper of HDF5. The library itself is not hardened against hostile files; what is
// tried is the wrapper: that it takes no dataset or attribute for something that it is not.
#include <hdf5.h>

#include <algorithm>
#include <string>

#include "fuzz.h"
#include "mudd/base/check.h"
#include "mudd/h5/h5_file.h"

namespace fuzz {
namespace {

using mudd::h5::DatasetFile;
using mudd::h5::DatasetPlace;

const char* const kDatasets[] = {"train/ids", "train/ids_crc32c", "valid/document_starts"};
const char* const kAttributes[] = {"format", "tokenizer", "vocab_size", "train_tokens"};

hid_t type_of(std::uint8_t code, std::uint16_t size) {
  switch (code % 16) {
    case 0: return H5Tcopy(H5T_STD_U16LE);
    case 1: return H5Tcopy(H5T_STD_U32LE);
    case 2: return H5Tcopy(H5T_STD_I64LE);
    case 3: return H5Tcopy(H5T_STD_U16BE);
    case 4: return H5Tcopy(H5T_IEEE_F64LE);
    case 5: return H5Tcopy(H5T_STD_I8LE);
    case 6: return H5Tcopy(H5T_STD_B32LE);
    case 7: return H5Tcopy(H5T_STD_REF_OBJ);
    case 8: {
      const hid_t type = H5Tcopy(H5T_C_S1);
      H5Tset_size(type, H5T_VARIABLE);
      return type;
    }
    case 9: return H5Tenum_create(H5T_STD_I32LE);
    case 10: {
      const hsize_t dims[1] = {static_cast<hsize_t>(1 + size % 100)};
      return H5Tarray_create2(H5T_STD_I64LE, 1, dims);
    }
    case 11: {
      const hid_t type = H5Tcreate(H5T_COMPOUND, 16);
      H5Tinsert(type, "a", 0, H5T_STD_I64LE);
      return type;
    }
    case 12: return H5Tcreate(H5T_OPAQUE, static_cast<size_t>(1 + size % 64));
    case 13: {
      const hid_t type = H5Tcopy(H5T_STD_U64LE);
      H5Tset_precision(type, static_cast<size_t>(1 + size % 64));
      return type;
    }
    default: {
      const hid_t type = H5Tcopy(H5T_C_S1);
      H5Tset_size(type, static_cast<size_t>(1 + size % 300));
      H5Tset_strpad(type, code % 2 ? H5T_STR_SPACEPAD : H5T_STR_NULLTERM);
      return type;
    }
  }
}

hid_t space_of(std::uint8_t code, std::uint16_t size) {
  const hsize_t a = size % 1000;
  const hsize_t dims[3] = {a, 1 + a % 5, 3};
  const hsize_t unlimited[1] = {H5S_UNLIMITED};
  switch (code % 8) {
    case 0: return H5Screate(H5S_SCALAR);
    case 1: return H5Screate(H5S_NULL);
    case 2: return H5Screate_simple(2, dims, nullptr);
    case 3: return H5Screate_simple(3, dims, nullptr);
    case 4: return H5Screate_simple(1, dims, unlimited);
    default: return H5Screate_simple(1, dims, nullptr);
  }
}

// A file made by the input: for each dataset and attribute its type, space, layout and bytes.
void make_file(Cursor& cursor, const std::string& scratch) {
  const hid_t file = H5Fcreate(scratch.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  for (const char* group : {"train", "valid"})
    H5Gclose(H5Gcreate2(file, group, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  std::vector<std::uint8_t> data(1 << 15);
  for (const char* name : {kDatasets[0], kDatasets[1], kDatasets[2], kAttributes[0], kAttributes[1],
                           kAttributes[2], kAttributes[3]}) {
    const auto code = cursor.take<std::uint8_t>(), how = cursor.take<std::uint8_t>();
    const auto size = cursor.take<std::uint16_t>();
    if (how >= 240) continue;
    std::fill(data.begin(), data.end(), cursor.take<std::uint8_t>());
    const hid_t type = type_of(code, size), space = space_of(how, size);
    const bool is_dataset = std::string_view(name).find('/') != std::string_view::npos;
    hid_t made = -1;
    if (is_dataset) {
      const hid_t list = H5Pcreate(H5P_DATASET_CREATE);
      const hsize_t chunk[1] = {static_cast<hsize_t>(1 + size % 64)};
      if (how % 8 >= 4 && (how & 8) != 0) H5Pset_chunk(list, 1, chunk);
      else if ((how & 16) != 0) H5Pset_layout(list, H5D_COMPACT);
      if ((how & 32) != 0) H5Pset_alloc_time(list, H5D_ALLOC_TIME_LATE);
      made = H5Dcreate2(file, name, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
      H5Pclose(list);
    } else {
      made = H5Acreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    }
    const hssize_t points = made >= 0 ? H5Sget_simple_extent_npoints(space) : 0;
    const bool plain = code % 16 != 7 && code % 16 != 8;  // bytes of the others are pointers to the library
    if (made >= 0 && plain && static_cast<std::size_t>(points) * H5Tget_size(type) <= data.size()) {
      if (is_dataset) H5Dwrite(made, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data.data());
      else H5Awrite(made, type, data.data());
    }
    if (made >= 0) is_dataset ? H5Dclose(made) : H5Aclose(made);
    H5Sclose(space);
    H5Tclose(type);
  }
  H5Fclose(file);
}

// The wrapper's answers to all questions that token_cache.py asks.
void ask(const DatasetFile& file) {
  const auto refusing = [](const auto& question) {
    try {
      question();
    } catch (const mudd::FormatError&) {
    }
  };
  for (const char* name : kDatasets) {
    refusing([&] {
      const DatasetPlace where = file.place(name);
      require(where.count >= 0 && where.offset >= -1, "places are numbers of bytes and elements");
      if (where.count > (1 << 18)) return;
      std::vector<std::uint64_t> out(static_cast<std::size_t>(where.count));
      file.read(name, where.type, 0, where.count, out.data());
    });
  }
  for (const char* name : kAttributes) {
    refusing([&] { (void)file.text(name); });
    refusing([&] { (void)file.number(name); });
  }
  require(!file.has("nothing"), "a name that is not there is not found");
}

// The first byte: 0 to 127 the rest is a file as it is; else it is made.
void run(const Bytes& input, const std::string& scratch) {
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  Cursor cursor(input);
  if (cursor.take<std::uint8_t>() < 128) {
    write_file(scratch, cursor.rest());
  } else {
    make_file(cursor, scratch);
  }
  ask(DatasetFile::open(scratch));
}

}  // namespace

const Target target = {"h5", {"\x89HDF\r\n\x1a\n", "OHDR", "OCHK", "FRHP", "TREE", "SNOD", "HEAP"}, run, nullptr};

}  // namespace fuzz
