#include "runtime/comm/hosts/window_tags.h"

#include <catch2/catch.hpp>
#include <set>

namespace dstrain {
namespace {

TEST_CASE("tags stay within the bound and tell windows apart until they are used again") {
  struct Case {
    int64_t first, bound, each, windows;
  };
  // The least that MPI promises, UCX's, Open MPI's own, and a bound that fits one window exactly.
  for (const Case c : {Case{16, 32767, 258, 126}, Case{16, 8388607, 10, 838859},
                       Case{16, 2147483647, 514, 4177983}, Case{16, 21, 6, 1}}) {
    const WindowTags tags(c.first, c.bound, c.each);
    CHECK(tags.windows() == c.windows);
    const int64_t last = tags.windows() - 1;
    const int most = static_cast<int>(c.each) - 1;
    CHECK(tags.tag(0, 0) == c.first);
    CHECK(tags.tag(last, most) <= c.bound);
    CHECK(tags.tag(last, most) + c.each > c.bound);
    CHECK(tags.tag(last + 1, 0) == tags.tag(0, 0));
    CHECK(tags.tag((int64_t{1} << 40) * c.windows + 3 % c.windows, 0) ==
          tags.tag(3 % c.windows, 0));
  }
  const WindowTags few(16, 40, 5);
  std::set<int> seen;
  for (int64_t window = 7; window < 7 + few.windows(); ++window)
    for (int what = 0; what < 5; ++what) CHECK(seen.insert(few.tag(window, what)).second);
}

}  // namespace
}  // namespace dstrain
