#include "runtime/data/tokenizer/unicode/classes.h"

#include <algorithm>
#include <vector>

#include "runtime/data/tokenizer/unicode/tables.h"

namespace dstrain::unicode {
namespace {

std::vector<uint8_t> unfold() {
  std::vector<uint8_t> all(utf8::kCodePoints);
  auto at = all.begin();
  for (int run = 0; run < kClassRunsCount; ++run)
    at = std::fill_n(at, kClassRuns[2 * run], static_cast<uint8_t>(kClassRuns[2 * run + 1]));
  return all;
}

}  // namespace

const uint8_t* classes() {
  static const std::vector<uint8_t> all = unfold();
  return all.data();
}

}  // namespace dstrain::unicode
