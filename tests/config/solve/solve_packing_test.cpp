// How documents become samples: the keys dstrain.data.packing and dstrain.data.too_long.
#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("run: documents are packed where the data are token files and the model has documents") {
  const auto asked = [](const std::string& data) {
    return ask(trains_with(
        fmt::format(R"("dstrain": {{"model": {{"vocab_size": 99}}, "data": {{{}}}}})", data)));
  };
  CHECK(asked("").job().data.packing == Packing::none);
  const Job packed = asked(R"("packing": "pack", "too_long": "drop")").job();
  CHECK(packed.data.packing == Packing::pack);
  CHECK(packed.data.too_long == TooLong::drop);
  const Job padded = asked(R"("packing": "pad", "too_long": "error", "format": "bin")").job();
  CHECK(padded.data.packing == Packing::pad);
  CHECK(padded.data.too_long == TooLong::error);
  CHECK(verdict(asked(R"("too_long": "drop")").load(), "dstrain.data.too_long") ==
        "no_effect: samples are parts of a stream of tokens");
  CHECK(verdict(asked(R"("packing": "pack", "format": "byte")").check(), "dstrain.data.packing") ==
        "error: wants token files, whose documents `dstrain tokenize` writes beside them, or texts "
        "for a model's tokenizer: use \"none\", data of format bin, or no format");
  CHECK(verdict(asked(R"("packing": "pad", "seq_len": 1)").check(), "dstrain.data.packing") ==
        "error: no document of a sample of one token has a target: use \"none\"");
}
