#include "mudd/dist/joining.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "mudd/base/check.h"
#include "mudd/dist/comm.h"

namespace mudd::dist {
namespace {

constexpr int kTag = (1 << 14) + 1;    // above the tags of the collectives (rank_comm.cc)
constexpr size_t kBytes = 4096;        // of a message
constexpr double kAnswerSeconds = 10;  // from rank 0's limit to the arrival of its answer

std::vector<std::string> lines_of(const std::vector<char>& bytes) {
  std::istringstream text(std::string(bytes.data()));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

// The lines of two ranks are "host", then facts in the same order. Return "" if the facts are equal.
std::string difference(const std::vector<char>& first, const std::vector<char>& other) {
  const auto wanted = lines_of(first), found = lines_of(other);
  for (size_t i = 1; i < std::max(wanted.size(), found.size()); ++i) {
    const std::string want = i < wanted.size() ? wanted[i] : "nothing",
                      got = i < found.size() ? found[i] : "nothing";
    if (want != got)
      return (found.empty() ? "" : " on " + found[0]) + ": expected " + want + " as on rank 0 (" + wanted[0] +
             "), got " + got;
  }
  return "";
}

std::vector<char> padded(const std::string& text) {
  check(text.size() < kBytes, "ranks", "facts: expected fewer than ", kBytes, " bytes, got ", text.size());
  std::vector<char> bytes(kBytes);
  std::copy(text.begin(), text.end(), bytes.begin());
  return bytes;
}

}  // namespace

Joining::Joining(Transport& transport, const RankPlace& place, const std::string& facts, double seconds)
    : transport_(transport), place_(place), seconds_(seconds), mine_(padded(place.host + "\n" + facts)) {}

bool Joining::advance() {
  if (place_.world == 1) return true;
  return place_.rank == 0 ? judge() : ask();
}

bool Joining::received(Message& message) const {
  if (!message.done) message.done = transport_.test(message.request);
  return message.done;
}

bool Joining::late(double grace) const {
  return Clock::now() - began_ > std::chrono::duration<double>(seconds_ + grace);
}

bool Joining::ask() {
  if (received_.empty()) {
    buffers_.assign(1, Bytes(kBytes));
    received_.push_back({transport_.irecv(buffers_[0].data(), kBytes, 0, kTag)});
    sent_.push_back({transport_.isend(mine_.data(), kBytes, 0, kTag)});
  }
  const bool taken = received(sent_[0]);
  if (received(received_[0]) && taken) {
    if (buffers_[0][0] != '\0') throw PeerError(buffers_[0].data());
    return true;
  }
  if (late(kAnswerSeconds)) {
    std::ostringstream text;
    text << "[ranks] rank 0 has not answered rank " << place_.rank << " within " << seconds_
         << " s (dist.join_timeout): it runs another program, or hangs; start every rank by the same command";
    throw std::runtime_error(text.str());
  }
  return false;
}

bool Joining::judge() {
  const int world = place_.world;
  if (received_.empty()) {
    buffers_.assign(static_cast<size_t>(world), Bytes(kBytes));
    received_.resize(static_cast<size_t>(world));
    for (int r = 1; r < world; ++r) received_[r].request = transport_.irecv(buffers_[r].data(), kBytes, r, kTag);
    received_[0].done = true;
  }
  if (!answered_) {
    bool all = true;
    for (Message& message : received_) all &= received(message);
    if (!all && !late(0)) return false;
    mine_ = padded(verdict());
    for (int r = 1; r < world; ++r)
      if (received_[r].done) sent_.push_back({transport_.isend(mine_.data(), kBytes, r, kTag)});
    answered_ = true;
  }
  bool all = true;
  for (Message& message : sent_) all &= received(message);
  if (!all && !late(kAnswerSeconds)) return false;
  if (mine_[0] != '\0') throw std::runtime_error(mine_.data());
  return true;
}

std::string Joining::verdict() const {
  for (int r = 1; r < place_.world; ++r) {
    std::ostringstream text;
    text << "[ranks] rank " << r;
    if (!received_[r].done) {
      text << " has not joined within " << seconds_
           << " s (dist.join_timeout): it runs another program, or hangs; start every rank by the same command";
      return text.str();
    }
    if (const std::string other = difference(mine_, buffers_[r]); !other.empty()) {
      text << other << "; start all ranks with the same version and environment";
      return text.str().substr(0, kBytes - 1);
    }
  }
  return "";
}

}  // namespace mudd::dist
