#include "mudd/dist/senders.h"

#include <algorithm>
#include <sstream>

namespace mudd::dist {

int Senders::awaited() const {
  const auto found =
      std::find_if(ranks_.begin(), ranks_.end(), [](const Sender& s) { return s.awaited.load() > 0; });
  return found == ranks_.end() ? -1 : static_cast<int>(found - ranks_.begin());
}

std::string Senders::where(int rank) const {
  const Sender& sender = ranks_[rank];
  if (sender.awaited.load() == 0 && sender.phase.load() < 0) return "";
  std::ostringstream text;
  text << "rank " << rank << " (another node), ";
  if (sender.phase.load() < 0) text << "no message yet";
  else
    text << "last message in step " << sender.step.load() << " ("
         << name_of(static_cast<Phase>(sender.phase.load())) << ")";
  if (sender.awaited.load() > 0) text << ", the next one is awaited";
  return text.str();
}

}  // namespace mudd::dist
