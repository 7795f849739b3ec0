// A test case that cannot run here is skipped, with the reason, and does not count as passed.
#pragma once

#include <string>

namespace dstrain {

// Notes that the running test case, or the rest of it, is skipped. The program lists such cases at its end.
void note_skipped(const std::string& reason);

}  // namespace dstrain

// Leaves the test case, which is then skipped, unless `condition` holds. `reason`: what is missing, as text.
#define SKIP_UNLESS(condition, reason) \
  do {                                 \
    if (!(condition)) {                \
      ::dstrain::note_skipped(reason); \
      return;                          \
    }                                  \
  } while (false)
