// Late transport: passes every call to another transport, and delivers each message some time after its
// receive, whose memory is NaN until then. It reveals reads before the message has arrived.
#pragma once

#include <memory>

#include "mudd/dist/transport.h"

namespace mudd::dist {

// Return the transport with every receive `seconds` late.
std::unique_ptr<Transport> make_late(std::unique_ptr<Transport> transport, double seconds);

}  // namespace mudd::dist
