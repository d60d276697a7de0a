// Sequences from documents, from a table, and packed ones.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bind/batcher.h"
#include "bind/class.h"
#include "mudd/base/check.h"
#include "mudd/data/index_cipher.h"
#include "mudd/data/packed_rows.h"
#include "mudd/data/row_batcher.h"

namespace py = pybind11;

namespace {

using namespace mudd;
using bind::PySource;
using Numbers = py::array_t<int64_t, py::array::c_style>;

// Sequences whose ids are pieces of a token file.
struct PyPlanned : PySource {
  RowPlan& pieces;
  PyPlanned(std::unique_ptr<BatchSource> made, RowPlan& plan) : PySource(std::move(made)), pieces(plan) {}
};

struct PyPacked final : PyPlanned {
  PackedRows& plan;
  PyPacked(std::unique_ptr<BatchSource> made, PackedRows& rows) : PyPlanned(std::move(made), rows), plan(rows) {}
};

template <typename Ids>
std::unique_ptr<PyPlanned> planned(Ids ids, std::unique_ptr<RowPlan> plan, const RowRule& rule, int64_t seq_len) {
  RowPlan& pieces = *plan;
  auto source = std::make_unique<RowBatcher>(std::move(ids), std::move(plan), rule, seq_len);
  return std::make_unique<PyPlanned>(std::move(source), pieces);
}

// Return (first id in the file, ids, whether they continue the document before) of each piece of a sequence.
std::vector<std::tuple<int64_t, int64_t, bool>> pieces_of(PyPlanned& self, int64_t sample) {
  check(sample >= 0, "rows", "sample: expected at least 0, got ", sample);
  const Busy busy(self.busy, "batcher");
  std::vector<TokenRange> ranges;
  self.pieces.pieces(sample, ranges);
  std::vector<std::tuple<int64_t, int64_t, bool>> found;
  found.reserve(ranges.size());
  for (const TokenRange& one : ranges) found.emplace_back(one.first, one.count, one.joined);
  return found;
}

RowShift shift_of(const std::string& name) {
  const std::map<std::string, RowShift> known = {{"next", RowShift::next},
                                                 {"inside", RowShift::inside},
                                                 {"behind_bos", RowShift::behind_bos},
                                                 {"packed", RowShift::packed}};
  const auto found = known.find(name);
  check(found != known.end(), "rows", "shift: expected next, inside, behind_bos or packed, got ", name);
  return found->second;
}

DocumentTable documents_of(const py::array_t<uint64_t, py::array::c_style>& starts, int64_t end, int64_t longest,
                           int64_t tail) {
  check(starts.ndim() == 1, "rows", "starts: expected a list, got ", starts.ndim(), " axes");
  return {std::vector<uint64_t>(starts.data(), starts.data() + starts.size()), end, longest, tail};
}

std::unique_ptr<PyPlanned> table_rows(const TokenFileSpec& file, const RowRule& rule, int64_t seq_len,
                                      const Numbers& begins, const Numbers& firsts, const Numbers& counts,
                                      int64_t buffer, uint64_t seed, bool wraps) {
  check(begins.ndim() == 1 && firsts.ndim() == 1 && counts.ndim() == 1 && firsts.size() == counts.size(), "rows",
        "firsts and counts: expected lists of equal length, got ", firsts.size(), " and ", counts.size());
  std::vector<TokenRange> pieces(static_cast<size_t>(firsts.size()));
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = {firsts.data()[i], counts.data()[i], true};
  auto plan = std::make_unique<TableRows>(std::vector<int64_t>(begins.data(), begins.data() + begins.size()),
                                          std::move(pieces), buffer, seed, wraps);
  return planned(file, std::move(plan), rule, seq_len);
}

// Return sequences of consecutive documents in `ids`, `counts[r]` of them a sequence.
std::unique_ptr<PyPlanned> memory_rows(const py::array_t<int32_t, py::array::c_style>& ids, const Numbers& lengths,
                                       const Numbers& counts, const RowRule& rule, int64_t seq_len,
                                       int64_t vocab_size) {
  check(ids.ndim() == 1 && lengths.ndim() == 1 && counts.ndim() == 1, "rows",
        "ids, lengths, counts: expected lists");
  std::vector<TokenRange> pieces(static_cast<size_t>(lengths.size()));
  int64_t first = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t length = lengths.data()[i];
    check(length >= 0, "rows", "lengths: expected at least 0, got ", length);
    pieces[i] = {first, length, false};
    first += length;
  }
  std::vector<int64_t> begins(1, 0);
  for (py::ssize_t r = 0; r < counts.size(); ++r) begins.push_back(begins.back() + counts.data()[r]);
  auto plan = std::make_unique<TableRows>(std::move(begins), std::move(pieces), 0, 0, false);
  auto held = std::make_unique<MemoryIds>(std::vector<int32_t>(ids.data(), ids.data() + ids.size()), vocab_size);
  return planned(std::unique_ptr<TokenIds>(std::move(held)), std::move(plan), rule, seq_len);
}

}  // namespace

void bind_rows(py::module_& m) {
  bind::Class<TokenFileSpec>(m, "TokenFileSpec", "The position of the ids in a file; see data/token_file.h.")
      .def(py::init([](std::string path, int64_t offset, int64_t count, int width, int64_t vocab_size,
                       std::vector<uint32_t> block_crcs) {
             return std::make_unique<TokenFileSpec>(
                 TokenFileSpec{std::move(path), offset, count, width, vocab_size, std::move(block_crcs)});
           }),
           py::kw_only(), py::arg("path"), py::arg("offset"), py::arg("count"), py::arg("width"),
           py::arg("vocab_size"), py::arg("block_crcs"));
  bind::Class<RowRule>(m, "RowRule",
                       "The rule from the ids of a sequence to inputs and targets; see data/row_batcher.h.")
      .def(py::init([](const std::string& shift, int32_t pad_id, int32_t bos_id, int32_t stop_id,
                       int32_t ignored_id, bool pad_counts) {
             return std::make_unique<RowRule>(
                 RowRule{shift_of(shift), pad_id, bos_id, stop_id, ignored_id, pad_counts});
           }),
           py::arg("shift"), py::kw_only(), py::arg("pad_id") = 0, py::arg("bos_id") = 0, py::arg("stop_id") = -1,
           py::arg("ignored_id") = -1, py::arg("pad_counts") = false);
  bind::Class<PyPlanned, PySource>(m, "PlannedRows",
                                   "Sequences whose ids are pieces of a token file; see data/row_plan.h.")
      .def("pieces", &pieces_of, py::arg("sample"),
           "(First id, number of ids, whether they continue the document before) of each piece of a sequence.");
  m.def(
      "document_rows",
      [](const TokenFileSpec& file, const RowRule& rule, int64_t seq_len,
         const py::array_t<uint64_t, py::array::c_style>& starts, int64_t longest, int64_t tail, int64_t first,
         int64_t count, bool wraps) {
        auto plan =
            std::make_unique<DocumentRows>(documents_of(starts, file.count, longest, tail), first, count, wraps);
        return planned(file, std::move(plan), rule, seq_len);
      },
      py::arg("file"), py::arg("rule"), py::arg("seq_len"), py::kw_only(), py::arg("starts"), py::arg("longest"),
      py::arg("tail"), py::arg("first"), py::arg("count"), py::arg("wraps"),
      "One document per sequence, `count` of them from document `first`.");
  m.def("table_rows", &table_rows, py::arg("file"), py::arg("rule"), py::arg("seq_len"), py::kw_only(),
        py::arg("begins"), py::arg("firsts"), py::arg("counts"), py::arg("buffer") = 0, py::arg("seed") = 0,
        py::arg("wraps") = true, "Sequence r is the pieces begins[r] to begins[r + 1] of a table of id ranges.");
  m.def("memory_rows", &memory_rows, py::arg("ids"), py::arg("lengths"), py::arg("counts"), py::arg("rule"),
        py::arg("seq_len"), py::arg("vocab_size"),
        "Sequence r is the next counts[r] documents of int32 ids in memory, with these lengths.");
  bind::Class<PyPacked, PyPlanned>(m, "PackedRows",
                                   "Sequences packed first-fit from documents; see data/packed_rows.h.")
      .def(py::init([](const TokenFileSpec& file, int64_t seq_len,
                       const py::array_t<uint64_t, py::array::c_style>& starts, int64_t longest, int64_t tail,
                       int64_t batch_size, int64_t workers, int64_t epochs, uint32_t seed, bool shuffle,
                       std::string index) {
             auto plan = std::make_unique<PackedRows>(
                 documents_of(starts, file.count, longest, tail),
                 PackOptions{seq_len, batch_size, workers, epochs, seed, shuffle, std::move(index)});
             PackedRows& rows = *plan;
             const RowRule rule{.shift = RowShift::packed};
             return std::make_unique<PyPacked>(std::make_unique<RowBatcher>(file, std::move(plan), rule, seq_len),
                                               rows);
           }),
           py::arg("file"), py::arg("seq_len"), py::kw_only(), py::arg("starts"), py::arg("longest"),
           py::arg("tail"), py::arg("batch_size"), py::arg("workers") = 1, py::arg("epochs") = 0,
           py::arg("seed") = 0, py::arg("shuffle") = true, py::arg("index") = "")
      .def(
          "start_of",
          [](PyPacked& self, int64_t batch) {
            const Busy busy(self.busy, "batcher");
            return self.plan.start_of(batch);
          },
          py::arg("batch"), "Place of the first document of a batch in its worker's stream.")
      .def(
          "cursor",
          [](PyPacked& self, int64_t batch) {
            const Busy busy(self.busy, "batcher");
            PackedRows::Cursor found = self.plan.cursor(batch);
            return std::make_pair(found.turn, std::move(found.places));
          },
          py::arg("batch"), "Turn of a batch, and places of the workers of that turn and of the following ones.")
      .def(
          "batches",
          [](PyPacked& self) {
            const Busy busy(self.busy, "batcher");
            return self.plan.batches();
          },
          "Batches before the data end, the last one of each worker included.");
  m.def(
      "shuffled_index",
      [](uint64_t index, uint64_t n, uint32_t seed) {
        check(n >= 1 && index < n, "order", "index: expected at least 0 and less than ", n, ", got ", index);
        return IndexCipher(n, seed)(index);
      },
      py::arg("index"), py::arg("n"), py::arg("seed"),
      "Image of an index in the record order of the loader grain.");
}
