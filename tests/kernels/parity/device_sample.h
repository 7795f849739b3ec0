// Samples of long lists of cases, by how long the device under test takes for a case.
#pragma once

#include <vector>

#include "tests/kernels/parity/test_device.h"
#include "tests/support/sample.h"

namespace dstrain::parity {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Returns a sample of one case in `of` on the emulated device, where a case takes up to a hundred times as long as on
// others. With a sanitizer, which makes it ten times as long again, one case in eight times as many is taken always. All
// cases are taken on other devices.
inline Sample sample_if_emulated(uint64_t of) {
  if (!test_device().is_emulated()) return Sample(1);
  return kSanitized ? Sample::always(8 * of) : Sample(of);
}

// Returns the cases that `sample` takes.
template <class Case>
std::vector<Case> sampled(const std::vector<Case>& cases, Sample sample) {
  std::vector<Case> taken;
  for (const Case& c : cases)
    if (sample.takes()) taken.push_back(c);
  return taken;
}

}  // namespace dstrain::parity
