#include "runtime/config/verdict.h"

#include <catch2/catch.hpp>

using namespace dstrain;

TEST_CASE("verdict: the four states that stop a run count as errors, the others do not") {
  const auto with = [](State state) {
    Verdict v;
    v.state = state;
    return has_errors({v});
  };
  CHECK_FALSE(with(State::honoured));
  CHECK_FALSE(with(State::no_effect));
  for (State state : {State::refused, State::not_yet, State::unknown, State::error})
    CHECK(with(state));
  CHECK(name_of(State::not_yet) == "not_yet");
}
