// Samples of long lists of cases, by how long the device under test takes for a case.
#pragma once

#include <vector>

#include "tests/kernels/parity/test_device.h"
#include "tests/support/sample.h"

namespace dstrain::parity {

// Returns a sample of one case in `of` on the emulated device, where a case takes up to a hundred times as long as on
// others, and of one in four times as many with a sanitizer. All cases are taken on other devices.
inline Sample sample_if_emulated(uint64_t of) {
  if (!test_device().is_emulated()) return Sample(1);
  return Sample(kSanitized ? 4 * of : of);
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
