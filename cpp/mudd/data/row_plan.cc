#include "mudd/data/row_plan.h"

#include <algorithm>
#include <utility>

#include "mudd/base/check.h"

namespace mudd {

DocumentTable::DocumentTable(std::vector<uint64_t> starts, int64_t end, int64_t longest, int64_t tail)
    : starts_(std::move(starts)), end_(end), longest_(longest), tail_(tail) {
  check(end >= 0, "rows", "end: expected at least 0, got ", end);
  check(longest >= 1 && tail >= 0 && tail < longest, "rows", "longest: expected more than the tail of ", tail,
        ", got ", longest);
  uint64_t before = 0;
  for (const uint64_t start : starts_) {
    check(start >= before && start <= static_cast<uint64_t>(end), "rows", "starts: expected ", before, " to ", end,
          ", got ", start);
    before = start;
  }
}

int64_t DocumentTable::whole_length(int64_t document) const {
  const size_t d = static_cast<size_t>(document);
  const int64_t behind = d + 1 < starts_.size() ? static_cast<int64_t>(starts_[d + 1]) : end_;
  return behind - static_cast<int64_t>(starts_[d]);
}

int64_t DocumentTable::length(int64_t document) const { return std::min(whole_length(document), longest_); }

void DocumentTable::append(int64_t document, std::vector<TokenRange>& out) const {
  const int64_t first = static_cast<int64_t>(starts_[static_cast<size_t>(document)]),
                whole = whole_length(document);
  if (whole <= longest_) {
    out.push_back({first, whole, false});
    return;
  }
  out.push_back({first, longest_ - tail_, false});
  if (tail_ > 0) out.push_back({first + whole - tail_, tail_, true});
}

DocumentRows::DocumentRows(DocumentTable documents, int64_t first, int64_t count, bool wraps)
    : documents_(std::move(documents)), first_(first), count_(count), wraps_(wraps) {
  check(first >= 0 && count >= 1 && first <= documents_.count() - count, "rows", "documents: expected a range of ",
        documents_.count(), ", got ", count, " from ", first);
}

void DocumentRows::pieces(int64_t sample, std::vector<TokenRange>& out) {
  out.clear();
  if (wraps_ || sample < count_) documents_.append(first_ + sample % count_, out);
}

TableRows::TableRows(std::vector<int64_t> begins, std::vector<TokenRange> pieces, int64_t buffer, uint64_t seed,
                     bool wraps)
    : begins_(std::move(begins)),
      pieces_(std::move(pieces)),
      buffer_(buffer),
      key_(philox_key(seed, "data.reservoir")),
      wraps_(wraps) {
  check(begins_.size() >= 2 && begins_.front() == 0 && begins_.back() == static_cast<int64_t>(pieces_.size()) &&
            std::is_sorted(begins_.begin(), begins_.end()),
        "rows", "begins: expected a rising list from 0 to ", pieces_.size());
  check(buffer >= 0, "rows", "buffer: expected at least 0, got ", buffer);
}

void TableRows::pieces(int64_t sample, std::vector<TokenRange>& out) {
  out.clear();
  if (!wraps_ && sample >= rows()) return;
  const auto r = static_cast<size_t>(row_of(sample));
  out.assign(pieces_.begin() + begins_[r], pieces_.begin() + begins_[r + 1]);
}

int64_t TableRows::row_of(int64_t sample) {
  const int64_t epoch = sample / rows();
  if (buffer_ <= 1) return sample % rows();
  if (epoch != epoch_) shuffle(epoch);
  return order_[static_cast<size_t>(sample % rows())];
}

void TableRows::shuffle(int64_t epoch) {
  const int64_t n = rows(), held = std::min(buffer_, n);
  uint32_t draws = 0;
  const auto below = [&](int64_t limit) {
    const PhiloxBlock words = philox({static_cast<uint32_t>(epoch), draws++, 0, 0}, key_);
    const uint64_t word = (uint64_t{words[1]} << 32) | words[0];
    return static_cast<size_t>(word % static_cast<uint64_t>(limit));
  };
  std::vector<int64_t> reservoir(static_cast<size_t>(held));
  for (int64_t i = 0; i < held; ++i) reservoir[static_cast<size_t>(i)] = i;
  order_.clear();
  order_.reserve(static_cast<size_t>(n));
  for (int64_t next = held; next < n; ++next) {
    int64_t& slot = reservoir[below(held)];
    order_.push_back(slot);
    slot = next;
  }
  for (int64_t left = held; left > 0; --left) {
    std::swap(reservoir[below(left)], reservoir[static_cast<size_t>(left) - 1]);
    order_.push_back(reservoir[static_cast<size_t>(left) - 1]);
  }
  epoch_ = epoch;
}

}  // namespace mudd
