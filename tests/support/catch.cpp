// Catch2's implementation, compiled once for all test programs: it is most of a minute's work.
#include "tests/support/catch.h"

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>

#include "tests/support/skip.h"

namespace dstrain {
namespace {

// What the test cases that have ended were.
struct Cases {
  int ran = 0, skipped = 0;    // skipped: without a single check
  bool current_skips = false;  // the running case has noted that it is skipped
};

Cases& cases() {
  static Cases all;
  return all;
}

// One of several ranks of a test speaks for all.
bool speaks() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr || std::strcmp(rank, "0") == 0;
}

class SkipListener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo&) override { cases().current_skips = false; }
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ++(cases().current_skips && stats.totals.assertions.total() == 0 ? cases().skipped
                                                                     : cases().ran);
  }
};
CATCH_REGISTER_LISTENER(SkipListener)

}  // namespace

void note_skipped(const std::string& reason) {
  cases().current_skips = true;
  if (speaks())
    Catch::cout() << "skipped: " << Catch::getResultCapture().getCurrentTestName() << ": " << reason
                  << std::endl;
}

int run_tests(int argc, char** argv) {
  const int failures = Catch::Session().run(argc, argv);
  const Cases& all = cases();
  if (all.skipped > 0 && speaks())
    Catch::cout() << all.skipped << " of " << all.skipped + all.ran << " test cases were skipped"
                  << std::endl;
  return failures == 0 && all.ran == 0 && all.skipped > 0 ? kAllSkipped : failures;
}

}  // namespace dstrain
