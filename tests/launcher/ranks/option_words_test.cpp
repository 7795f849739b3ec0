#include "launcher/ranks/option_words.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

using Words = std::vector<std::string>;

TEST_CASE("options are left out with their values, however they were given") {
  const std::vector<std::string_view> names = {"--num_gpus", "--seed"};
  CHECK(without_options({"--num_gpus", "2", "--config", "c", "--seed=3"}, names) ==
        Words{"--config", "c"});
  CHECK(without_options({"--config=--seed", "--num_gpus=2"}, names) == Words{"--config=--seed"});
  CHECK(without_options({"--steps", "1"}, names) == Words{"--steps", "1"});
}

}  // namespace
}  // namespace dstrain
