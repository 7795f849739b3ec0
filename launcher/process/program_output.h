// What a child process that ends soon writes.
#pragma once

#include <poll.h>

#include <string>

#include "launcher/process/child.h"
#include "launcher/process/read_pipe.h"
#include "runtime/core/rank_board.h"

namespace dstrain {

// Reads what the child process writes until it ends, or `seconds` are over. Then child.ended() tells which.
inline std::string program_output(Child& child, double seconds) {
  constexpr double second = 1e9;
  constexpr int tick_ms = 5;
  const int64_t end = monotonic_ns() + static_cast<int64_t>(seconds * second);
  std::string said;
  for (bool ended = false; !ended && monotonic_ns() < end; ::poll(nullptr, 0, tick_ms)) {
    ended =
        child.ended().has_value();  // checked first, so that the loop still reads its last output
    read_available(child.output(), [&](std::string_view bytes) { said += bytes; });
  }
  return said;
}

}  // namespace dstrain
