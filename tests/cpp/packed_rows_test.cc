// Packed rows, rows of documents and of tables: against what the pages say, and by any way to ask.
#include "mudd/data/packed_rows.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "mudd/base/check.h"
#include "mudd/data/row_batcher.h"
#include "mudd/io/file_ops.h"
#include "temp_folder.h"
#include "temp_tokens.h"

using namespace mudd;
using namespace mudd::test;

namespace {

// Documents of lengths 2 to 9 over ids 1, 2, ...
struct Documents {
  std::vector<uint64_t> starts;
  int64_t end = 0;
};

Documents documents(int64_t n) {
  Documents made;
  for (int64_t d = 0; d < n; ++d) {
    made.starts.push_back(static_cast<uint64_t>(made.end));
    made.end += 2 + d * 7 % 8;
  }
  return made;
}

std::vector<std::vector<TokenRange>> batches_of(PackedRows& plan, int64_t first, int64_t rows) {
  std::vector<std::vector<TokenRange>> found(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) plan.pieces(first + r, found[static_cast<size_t>(r)]);
  return found;
}

bool same(const std::vector<std::vector<TokenRange>>& a, const std::vector<std::vector<TokenRange>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const TokenRange& p, const TokenRange& q) {
      return p.first == q.first && p.count == q.count;
    });
  });
}

}  // namespace

TEST_CASE("the example of the page: packed 0 a b 0 | 0 c 0 | padding") {
  TempTokens<uint16_t> file({0, 5, 6, 0, 0, 7, 0}, 10);
  auto plan = std::make_unique<PackedRows>(DocumentTable({0, 4}, 7, 7, 1),
                                           PackOptions{.seq_len = 8, .batch_size = 1, .shuffle = false});
  RowBatcher rows(file.spec, std::move(plan), {.shift = RowShift::packed}, 8);
  std::vector<int32_t> inputs(8), targets(8), positions(8), segments(8);
  CHECK(rows.fill(0, 1, {inputs.data(), targets.data(), positions.data(), segments.data()}) == 3);
  CHECK(inputs == std::vector<int32_t>{0, 0, 5, 0, 0, 0, 0, 0});
  CHECK(targets == std::vector<int32_t>{-1, 5, 6, -1, -1, 7, -1, -1});
  CHECK(segments == std::vector<int32_t>{0, 1, 1, 0, 0, 2, 0, 0});
  CHECK(positions == std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 0});
}

TEST_CASE("packed rows: first fit, none split, workers in turn, whatever the order of questions") {
  const Documents made = documents(37);
  for (const int64_t workers : {1, 3}) {
    const PackOptions options{.seq_len = 12, .batch_size = 4, .workers = workers, .seed = 5};
    const DocumentTable table(made.starts, made.end, 11, 1);
    PackedRows forward(table, options), backward(table, options);
    for (int64_t batch = 24; batch >= 0; --batch) {
      PackedRows alone(table, options);
      const auto rows = batches_of(alone, batch * 4, 4);
      CHECK(same(rows, batches_of(backward, batch * 4, 4)));
      CHECK(same(batches_of(forward, (24 - batch) * 4, 4), batches_of(forward, (24 - batch) * 4, 4)));
      for (const auto& row : rows) {
        int64_t ids = 0;
        for (const TokenRange& piece : row) ids += piece.count;
        CHECK(ids <= 12);
      }
    }
  }
}

TEST_CASE("packed rows: an end of the data, and documents that are read once an epoch") {
  const Documents made = documents(40);
  const DocumentTable table(made.starts, made.end, 11, 1);
  for (const int64_t workers : {1, 3, 50}) {
    PackedRows plan(table, {.seq_len = 12, .batch_size = 2, .workers = workers, .epochs = 2});
    const int64_t batches = plan.batches();
    CHECK(batches > 10);
    std::vector<int> seen(40);
    std::vector<TokenRange> pieces;
    for (int64_t s = 0; s < batches * 2; ++s) {
      plan.pieces(s, pieces);
      for (const TokenRange& piece : pieces) {
        const auto at = std::find(made.starts.begin(), made.starts.end(), static_cast<uint64_t>(piece.first));
        REQUIRE(at != made.starts.end());
        ++seen[static_cast<size_t>(at - made.starts.begin())];
      }
    }
    CHECK(std::count(seen.begin(), seen.end(), 2) == 40);
    CHECK(message_of([&] { plan.start_of(batches); }).find("the data end before batch") != std::string::npos);
  }
}

TEST_CASE("packed rows: the cursor of each batch has the turn and a place for each worker") {
  const Documents made = documents(40);
  const DocumentTable table(made.starts, made.end, 11, 1);
  const PackOptions options{.seq_len = 12, .batch_size = 2, .workers = 3, .epochs = 1};
  const int64_t batches = PackedRows(table, options).batches();
  std::vector<int64_t> last(3, 0);
  for (int64_t batch = 0; batch < batches; ++batch) {
    PackedRows plan(table, options);
    const PackedRows::Cursor found = plan.cursor(batch);
    CHECK(found.turn >= batch);
    REQUIRE(found.places.size() == 3);
    CHECK(found.places[0] == plan.start_of(batch));
    for (int64_t turn = 0; turn < 3; ++turn) {
      const auto worker = static_cast<size_t>((found.turn + turn) % 3);
      CHECK(found.places[static_cast<size_t>(turn)] >= last[worker]);
      last[worker] = found.places[static_cast<size_t>(turn)];
    }
  }
  CHECK(std::max(last[1], last[2]) == 13);  // the 13 documents of a worker that has ended
}

TEST_CASE("the starts of batches are kept, and found again where the file is damaged") {
  const TempFolder folder;
  const Documents made = documents(50);
  const DocumentTable table(made.starts, made.end, 11, 1);
  PackOptions options{.seq_len = 12, .batch_size = 2, .seed = 9, .index = folder.path() + "/starts"};
  PackedRows(table, options).start_of(5000);
  const std::string kept = io::read_file(io::posix_files(), options.index, 1 << 20);
  CHECK(kept.size() > 1000 * 8);
  const int64_t wanted = PackedRows(table, options).start_of(4000);
  for (const size_t at : {size_t{3}, size_t{9}, kept.size() / 2, kept.size() - 1}) {
    std::string damaged = kept;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    io::replace_file(io::posix_files(), options.index, damaged.data(), damaged.size());
    CHECK(PackedRows(table, options).start_of(4000) == wanted);
  }
  io::replace_file(io::posix_files(), options.index, kept.data(), 10);
  CHECK(PackedRows(table, options).start_of(4000) == wanted);
}

TEST_CASE("the reservoir gives each row once an epoch, at most `buffer` places early") {
  std::vector<int64_t> begins;
  std::vector<TokenRange> pieces;
  for (int64_t r = 0; r <= 100; ++r) begins.push_back(r);
  for (int64_t r = 0; r < 100; ++r) pieces.push_back({r, 1, true});
  TableRows plan(begins, pieces, 8, 3, true);
  std::vector<TokenRange> row;
  std::vector<std::vector<int64_t>> epochs(2);
  for (int64_t s = 0; s < 200; ++s) {
    plan.pieces(s, row);
    epochs[static_cast<size_t>(s / 100)].push_back(row.at(0).first);
    if (s % 100 + 8 < 100) CHECK(row.at(0).first <= s % 100 + 8);
  }
  CHECK(epochs[0] != epochs[1]);
  for (auto& epoch : epochs) {
    std::sort(epoch.begin(), epoch.end());
    for (int64_t r = 0; r < 100; ++r) CHECK(epoch[static_cast<size_t>(r)] == r);
  }
}

TEST_CASE("ids in memory give the rows of a file") {
  const std::vector<int32_t> ids = {0, 5, 6, 0, 0, 7, 0};
  const auto rows_of = [&] {
    return std::make_unique<TableRows>(std::vector<int64_t>{0, 2},
                                       std::vector<TokenRange>{{0, 4, false}, {4, 3, false}}, 0, 0, false);
  };
  TempTokens<uint16_t> file({0, 5, 6, 0, 0, 7, 0}, 10);
  RowBatcher of_file(file.spec, rows_of(), {.shift = RowShift::packed}, 8);
  RowBatcher of_memory(std::make_unique<MemoryIds>(ids, 10), rows_of(), {.shift = RowShift::packed}, 8);
  std::vector<int32_t> a(8), b(8), c(8), d(8);
  CHECK(of_file.fill(0, 1, {a.data(), b.data()}) == of_memory.fill(0, 1, {c.data(), d.data()}));
  CHECK(a == c);
  CHECK(b == d);
  CHECK_THROWS_AS(MemoryIds(ids, 7), Error);
  CHECK_THROWS_AS(MemoryIds(ids, 10).read(5, 3, a.data()), Error);
}
