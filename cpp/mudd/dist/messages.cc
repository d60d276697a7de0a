#include "mudd/dist/messages.h"

#include <algorithm>

namespace mudd::dist {

void Messages::send(const Link& link, const void* data, int64_t bytes, int to) {
  for (int64_t begin = 0; begin < bytes; begin += link.chunk_bytes) {
    const int64_t count = std::min(link.chunk_bytes, bytes - begin);
    const auto* from = static_cast<const std::byte*>(data);
    open_.push_back(
        {link.transport->isend(from ? from + begin : nullptr, count, link.ranks[to], link.tag), link.ranks[to]});
    if (link.partners) link.partners->offer(link.ranks[to]);
    if (!link.meter) continue;
    ++link.meter->messages;
    link.meter->bytes += count;
  }
}

void Messages::receive(const Link& link, void* data, int64_t bytes, int from) {
  for (int64_t begin = 0; begin < bytes; begin += link.chunk_bytes) {
    auto* to = static_cast<std::byte*>(data);
    const int64_t count = std::min(link.chunk_bytes, bytes - begin);
    open_.push_back({link.transport->irecv(to ? to + begin : nullptr, count, link.ranks[from], link.tag),
                     link.ranks[from], true});
    if (link.partners) link.partners->await(link.ranks[from]);
  }
}

bool Messages::done(const Link& link) {
  std::erase_if(open_, [&](const Open& open) {
    if (!link.transport->test(open.request)) return false;
    if (!link.partners) return true;
    if (open.receives) link.partners->heard(open.partner, link.phase, link.step->load(std::memory_order_relaxed));
    else link.partners->took(open.partner);
    return true;
  });
  return open_.empty();
}

}  // namespace mudd::dist
