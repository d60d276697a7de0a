#include "mudd/data/packed_rows.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "mudd/base/check.h"
#include "mudd/io/crc32c.h"
#include "mudd/io/errors.h"
#include "mudd/io/file_ops.h"

namespace mudd {
namespace {

constexpr int64_t kEnd = -1;
constexpr uint64_t kMagic = 0x325458444E494D55;  // "UMINDXT2": version 1 ended with the first worker
constexpr uint64_t kLargestIndex = uint64_t{1} << 32;

}  // namespace

PackedRows::PackedRows(DocumentTable documents, PackOptions options)
    : documents_(std::move(documents)), options_(std::move(options)) {
  check(documents_.count() >= 1, "pack", "documents: expected one or more, got none");
  check(options_.batch_size >= 1 && options_.workers >= 1, "pack",
        "batch_size, workers: expected at least 1, got ", options_.batch_size, " and ", options_.workers);
  check(options_.epochs >= 0, "pack", "epochs: expected at least 0, got ", options_.epochs);
  while (leaves_ < static_cast<size_t>(options_.batch_size)) leaves_ *= 2;
  free_.resize(2 * leaves_);
  rows_.resize(static_cast<size_t>(options_.batch_size));
  for (int64_t worker = 0; worker < options_.workers; ++worker) add_start(documents_of(worker) > 0 ? 0 : kEnd);
  if (!options_.index.empty()) load_index();
}

// Return the count of a worker's documents before the data end; without end more than a run can read.
int64_t PackedRows::documents_of(int64_t worker) const {
  if (options_.epochs == 0) return std::numeric_limits<int64_t>::max();
  const int64_t records = documents_.count() * options_.epochs;
  return std::max<int64_t>(0, (records - worker + options_.workers - 1) / options_.workers);
}

void PackedRows::add_start(int64_t place) {
  const auto turn = static_cast<int64_t>(starts_.size());
  starts_.push_back(place);
  if (place == kEnd) return;
  if (before_tail_ == turn) ++before_tail_;
  else tail_.push_back(turn);
}

int64_t PackedRows::document_at(int64_t worker, int64_t place) {
  const int64_t n = documents_.count(), record = worker + place * options_.workers, epoch = record / n;
  if (options_.epochs > 0 && epoch >= options_.epochs) return kEnd;
  if (!options_.shuffle) return record % n;
  if (epoch != cipher_epoch_) {
    cipher_ = IndexCipher(static_cast<uint64_t>(n), options_.seed + static_cast<uint32_t>(epoch));
    cipher_epoch_ = epoch;
  }
  return static_cast<int64_t>(cipher_(static_cast<uint64_t>(record % n)));
}

// Return the first sequence with this much free space, or kEnd.
int64_t PackedRows::first_fit(int64_t length) {
  if (free_[1] < length) return kEnd;
  size_t node = 1;
  while (node < leaves_) node = 2 * node + (free_[2 * node] < length ? 1 : 0);
  return static_cast<int64_t>(node - leaves_);
}

void PackedRows::take_free(size_t row, int64_t length) {
  size_t node = row + leaves_;
  free_[node] -= length;
  while (node > 1) {
    node /= 2;
    free_[node] = std::max(free_[2 * node], free_[2 * node + 1]);
  }
}

// Fill `rows_` from a place of a worker's stream. Return the place of the first document that does not fit, or
// kEnd if the worker ends; `rows_` then has its last documents.
int64_t PackedRows::pack(int64_t worker, int64_t place) {
  for (auto& row : rows_) row.clear();
  for (size_t node = 2 * leaves_ - 1; node > 0; --node) {
    const bool leaf = node >= leaves_;
    const bool there = node < leaves_ + rows_.size();
    free_[node] = leaf ? (there ? options_.seq_len : 0) : std::max(free_[2 * node], free_[2 * node + 1]);
  }
  for (;; ++place) {
    const int64_t document = document_at(worker, place);
    if (document == kEnd) return kEnd;
    const int64_t length = documents_.length(document);
    check(length > 0, "pack", "document ", document, ": expected ids, got none");
    const int64_t row = first_fit(length);
    if (row == kEnd) return place;
    rows_[static_cast<size_t>(row)].push_back(document);
    take_free(static_cast<size_t>(row), length);
  }
}

bool PackedRows::extend() {
  const int64_t turn = static_cast<int64_t>(starts_.size()) - options_.workers;
  if (std::all_of(starts_.end() - options_.workers, starts_.end(), [](int64_t place) { return place == kEnd; }))
    return false;
  const int64_t place = starts_[static_cast<size_t>(turn)];
  if (place == kEnd) {
    add_start(kEnd);
  } else {
    add_start(pack(turn % options_.workers, place));
    packed_ = turn;
  }
  keep_index(4);  // rarely, because many may follow
  return true;
}

int64_t PackedRows::turn_of(int64_t batch) {
  check(batch >= 0, "pack", "batch: expected at least 0, got ", batch);
  while (batch >= before_tail_ + static_cast<int64_t>(tail_.size()))
    check(extend(), "pack", "the data end before batch ", batch, " (data.epochs=", options_.epochs, ")");
  keep_index(64);  // so that a resumed run repacks few batches
  return batch < before_tail_ ? batch : tail_[static_cast<size_t>(batch - before_tail_)];
}

int64_t PackedRows::start_of(int64_t batch) { return starts_[static_cast<size_t>(turn_of(batch))]; }

PackedRows::Cursor PackedRows::cursor(int64_t batch) {
  Cursor found{turn_of(batch), {}};
  for (int64_t turn = found.turn; turn < found.turn + options_.workers; ++turn) {
    while (turn >= static_cast<int64_t>(starts_.size()) && extend()) {
    }
    const bool known = turn < static_cast<int64_t>(starts_.size());
    const int64_t place = known ? starts_[static_cast<size_t>(turn)] : kEnd;
    found.places.push_back(place == kEnd ? documents_of(turn % options_.workers) : place);
  }
  return found;
}

int64_t PackedRows::batches() {
  check(options_.epochs > 0, "pack", "epochs: expected an end of the data, got none");
  while (extend()) {
  }
  return before_tail_ + static_cast<int64_t>(tail_.size());
}

int64_t PackedRows::rows() const {
  int64_t batches = 0;  // a pass over the first epoch that leaves the stored starts alone
  PackOptions once = options_;
  once.epochs = 0;
  once.index.clear();
  if (options_.epochs == 1) {
    once.epochs = 1;
    return PackedRows(documents_, once).batches() * options_.batch_size;
  }
  PackedRows pass(documents_, once);
  for (;; ++batches) {
    const int64_t worker = batches % options_.workers;
    if (worker + pass.start_of(batches) * options_.workers >= documents_.count()) break;
  }
  return batches * options_.batch_size;
}

void PackedRows::pieces(int64_t sample, std::vector<TokenRange>& out) {
  out.clear();
  const int64_t turn = turn_of(sample / options_.batch_size);
  if (packed_ != turn) {
    pack(turn % options_.workers, starts_[static_cast<size_t>(turn)]);
    packed_ = turn;
  }
  for (const int64_t document : rows_[static_cast<size_t>(sample % options_.batch_size)])
    documents_.append(document, out);
}

void PackedRows::load_index() {
  try {
    const std::string data = io::read_file(io::files(), options_.index, kLargestIndex);
    uint64_t head[2];
    uint32_t crc = 0;
    if (data.size() < sizeof(head) + sizeof(crc)) return;
    std::memcpy(head, data.data(), sizeof(head));
    const uint64_t count = (data.size() - sizeof(head) - sizeof(crc)) / sizeof(int64_t);
    if (head[0] != kMagic || head[1] != count || head[1] < starts_.size()) return;
    const size_t body = data.size() - sizeof(crc);
    std::memcpy(&crc, data.data() + body, sizeof(crc));
    if (crc != io::crc32c(data.data(), body)) return;  // recomputed from the lengths
    std::vector<int64_t> starts(count);
    std::memcpy(starts.data(), data.data() + sizeof(head), count * sizeof(int64_t));
    for (size_t turn = starts_.size(); turn < count; ++turn) add_start(starts[turn]);
    saved_ = starts_.size();
  } catch (const io::IoError&) {  // it does not exist yet
  } catch (const FormatError&) {
  }
}

// Save the starts if the unsaved ones exceed a fraction of the others.
void PackedRows::keep_index(size_t part) {
  if (options_.index.empty() || starts_.size() < saved_ + std::max<size_t>(1024, saved_ / part)) return;
  save_index();
  saved_ = starts_.size();
}

void PackedRows::save_index() const {
  const uint64_t head[2] = {kMagic, starts_.size()};
  std::string data(reinterpret_cast<const char*>(head), sizeof(head));
  data.append(reinterpret_cast<const char*>(starts_.data()), starts_.size() * sizeof(int64_t));
  const uint32_t crc = io::crc32c(data.data(), data.size());
  data.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  try {
    io::replace_file(io::files(), options_.index, data.data(), data.size());
  } catch (const io::IoError&) {  // it only saves time
  }
}

}  // namespace mudd
