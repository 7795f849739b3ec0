// Catch2's implementation, compiled once for all test programs: it is most of a minute's work.
#include "tests/support/catch.h"

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>

int dstrain::run_tests(int argc, char** argv) {
  return Catch::Session().run(argc, argv);
}
