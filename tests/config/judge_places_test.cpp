// Where verdicts are: each key's place in the file, keys that are there twice, and keys without an end.
#include <catch2/catch.hpp>

#include "runtime/config/judge.h"
#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("verdicts: every key of the file has one, with its place") {
  const LoadedConfig loaded =
      ask("{\n \"train_batch_size\": 8,\n \"fp16\": {\"enabled\": true\n   \"loss_scale\": 0}}")
          .check();
  REQUIRE(loaded.verdicts.size() == 4);
  CHECK(loaded.verdicts[0].key == "train_batch_size");
  CHECK(loaded.verdicts[1].key == "fp16");
  CHECK(loaded.verdicts[3].key == "fp16.loss_scale");
  CHECK(loaded.verdicts[3].line == 4);
  CHECK(loaded.verdicts[3].column == 4);
  CHECK(loaded.verdicts[3].where == "c.json:4:4");
}

TEST_CASE("verdicts: a key that is given twice names both places") {
  const LoadedConfig loaded =
      ask("{\"steps_per_print\": 1,\n \"train_batch_size\": 8,\n \"steps_per_print\": 2}").check();
  CHECK(verdict(loaded, "train_batch_size") == "honoured");
  CHECK(loaded.verdicts[2].state == State::error);
  CHECK(loaded.verdicts[2].message == "is given twice, first at line 1, column 2: keep one");
  CHECK(loaded.verdicts[2].line == 3);
}

TEST_CASE("verdicts: hostile keys cannot make them grow") {
  const std::string name(100000, 'k');
  const LoadedConfig loaded =
      ask("{\"" + name + "\": {\"" + name + "\": {\"a\": {\"b\": {\"c\": 1}}}}}").check();
  for (const Verdict& v : loaded.verdicts) CHECK(v.key.size() < 400);
}
