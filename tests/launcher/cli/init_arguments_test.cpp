#include "launcher/cli/init_arguments.h"

#include <catch2/catch.hpp>

#include "tests/launcher/cli/parsed_line.h"

namespace dstrain {
namespace {

using test::error_of;
using test::parse;

TEST_CASE("init takes a model, data, memory, ranks and what is trained") {
  const auto a = std::get<InitArguments>(
      parse("init --model gpt2 --size 124M --data d.bin --optimizer Lion --lr 1e-4 --precision "
            "bf16 --batch 32 --steps 9 --num_gpus 8 --num_nodes 2 --device_memory 80GB "
            "--host_memory 1TB --zero_stage 2 --output c.json --set a.b=1 -y"));
  CHECK(a.model == "gpt2");
  CHECK(a.parameters == 124e6);
  CHECK(a.data == "d.bin");
  CHECK(a.optimizer == "Lion");
  CHECK(a.learning_rate == 1e-4);
  CHECK(a.precision == "bf16");
  CHECK(a.batch == 32);
  CHECK(a.steps == 9);
  CHECK(a.ranks == 8);
  CHECK(a.nodes == 2);
  CHECK(a.device_memory == 80'000'000'000);
  CHECK(a.host_memory == 1'000'000'000'000);
  CHECK(a.zero_stage == 2);
  CHECK(a.output == "c.json");
  CHECK(a.sets == std::vector<std::string>{"a.b=1"});
  CHECK(a.yes);
}

TEST_CASE("init has defaults, and refuses values that mean nothing") {
  const auto a = std::get<InitArguments>(parse("init"));
  CHECK(a.output == "ds_config.json");
  CHECK(a.model == "gptlite");
  CHECK(a.nodes == 1);
  CHECK_FALSE((a.yes || a.ranks || a.parameters));
  CHECK(std::get<InitArguments>(parse("init --size 1.3B")).parameters == Approx(1.3e9));
  CHECK(std::get<InitArguments>(parse("init --size 5000")).parameters == 5000);
  for (const char* wrong : {"M", "0", "-1M", "1MM", "2000B"})
    CHECK(error_of(std::string("init --size ") + wrong)
              .starts_with("--size: expected a number of parameters such as 124M or 1.3B"));
  CHECK(error_of("init --precision f32") == "--precision: expected bf16, fp16 or fp32, got 'f32'");
  CHECK(error_of("init --output c.txt") == "--output: expected FILE.json, got 'c.txt'");
  CHECK(error_of("init --host_memory 0") == "--host_memory: expected more than 0 bytes");
}

}  // namespace
}  // namespace dstrain
