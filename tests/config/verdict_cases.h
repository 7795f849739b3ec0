// Verdicts on keys, one case after another.
#pragma once

#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

namespace dstrain::test {

// The members of a configuration, a key in them, and the verdict on it: "state: message".
struct VerdictCase {
  std::string members, key, verdict;
};

// Checks the verdict of every case.
inline void check_all(const std::vector<VerdictCase>& cases) {
  for (const VerdictCase& c : cases) {
    INFO(c.members);
    CHECK(verdict(ask(trains_with(c.members)).check(), c.key) == c.verdict);
  }
}

// Returns the section zero_optimization with these members.
inline std::string zero(const std::string& members) {
  return "\"zero_optimization\": {" + members + "}";
}

}  // namespace dstrain::test
