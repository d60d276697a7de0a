#include "mudd/dist/partners.h"

#include <algorithm>
#include <sstream>

namespace mudd::dist {

int Partners::missing() const {
  for (const auto count : {&Partner::awaited, &Partner::offered}) {
    const auto found =
        std::find_if(ranks_.begin(), ranks_.end(), [&](const Partner& p) { return (p.*count).load() > 0; });
    if (found != ranks_.end()) return static_cast<int>(found - ranks_.begin());
  }
  return -1;
}

std::string Partners::where(int rank) const {
  const Partner& partner = ranks_[rank];
  const bool awaited = partner.awaited.load() > 0, offered = partner.offered.load() > 0;
  if (!awaited && !offered && partner.phase.load() < 0) return "";
  std::ostringstream text;
  text << "rank " << rank << " (another node), ";
  if (partner.phase.load() < 0) text << "no message yet";
  else
    text << "last message in step " << partner.step.load() << " ("
         << text_of(static_cast<Phase>(partner.phase.load())) << ")";
  if (awaited) text << ", the next one is awaited";
  else if (offered) text << ", it takes no message";
  return text.str();
}

}  // namespace mudd::dist
