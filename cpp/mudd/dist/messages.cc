#include "mudd/dist/messages.h"

#include <algorithm>

namespace mudd::dist {

void Messages::send(const Link& link, const void* data, int64_t bytes, int to) {
  for (int64_t begin = 0; begin < bytes; begin += link.chunk_bytes) {
    const int64_t count = std::min(link.chunk_bytes, bytes - begin);
    const auto* from = static_cast<const std::byte*>(data);
    requests_.push_back(link.transport->isend(from ? from + begin : nullptr, count, link.ranks[to], link.tag));
    if (!link.meter) continue;
    ++link.meter->messages;
    link.meter->bytes += count;
  }
}

void Messages::receive(const Link& link, void* data, int64_t bytes, int from) {
  for (int64_t begin = 0; begin < bytes; begin += link.chunk_bytes) {
    auto* to = static_cast<std::byte*>(data);
    requests_.push_back(link.transport->irecv(to ? to + begin : nullptr, std::min(link.chunk_bytes, bytes - begin),
                                              link.ranks[from], link.tag));
  }
}

bool Messages::done(const Link& link) {
  std::erase_if(requests_, [&](Transport::Request request) { return link.transport->test(request); });
  return requests_.empty();
}

}  // namespace mudd::dist
