#include "runtime/engine/verify/first_difference.h"

#include <catch2/catch.hpp>

#include "tests/engine/verify/records.h"

namespace dstrain {
namespace {

// A step that loads x, and computes y and then z of it.
RankRecord chain(uint64_t x, uint64_t y, uint64_t z, const std::string& name = "y") {
  return Record()
      .issue(1, "load_batch", 0, {}, {{"x", "x", x}})
      .issue(1, "linear one", 0, {{"x", "x", x}}, {{name, name, y, "y"}})
      .issue(1, "linear two", 0, {{name, name, y, "y"}}, {{"z", "z", z}})
      .record;
}

std::optional<FirstDifference> first(const RankRecord& plain, const RankRecord& mine) {
  const std::vector<RankRecord> configured{mine};
  return first_difference({plain}, {configured, 1});
}

}  // namespace

TEST_CASE("first difference: the instruction whose inputs are equal") {
  CHECK_FALSE(first(chain(1, 2, 3), chain(1, 2, 3)));
  const auto found = first(chain(1, 2, 3), chain(1, 9, 8));
  REQUIRE(found);
  CHECK(found->instruction == "linear one");
  CHECK(found->buffer == "y");
  CHECK(first(chain(1, 2, 3), chain(9, 8, 7))->instruction == "load_batch");
}

TEST_CASE("first difference: what was computed again counts as the original") {
  CHECK_FALSE(first(chain(1, 2, 3), chain(1, 2, 3, "again")));
  CHECK(first(chain(1, 2, 3), chain(1, 2, 9, "again"))->instruction == "linear two");
}

TEST_CASE("first difference: where a value is computed twice, the first time counts too") {
  const auto twice = [](uint64_t y, uint64_t again, uint64_t z, uint64_t dx) {
    return Record()
        .issue(1, "attention one", 0, {}, {{"y", "y", y}})
        .issue(1, "linear two", 0, {{"y", "y", y}}, {{"z", "z", z}})
        .issue(1, "attention re:one", 0, {}, {{"again", "again", again, "y"}})
        .issue(1, "attention_grad one", 0, {{"again", "again", again, "y"}}, {{"dx", "dx", dx}})
        .record;
  };
  const RankRecord plain =
      Record()
          .issue(1, "attention one", 0, {}, {{"y", "y", 1}})
          .issue(1, "linear two", 0, {{"y", "y", 1}}, {{"z", "z", 2}})
          .issue(1, "attention_grad one", 0, {{"y", "y", 1}}, {{"dx", "dx", 3}})
          .record;
  CHECK_FALSE(first(plain, twice(1, 1, 2, 3)));
  CHECK(first(plain, twice(7, 1, 8, 9))->instruction == "attention one");
  CHECK(first(plain, twice(1, 7, 2, 9))->instruction == "attention re:one");
}

TEST_CASE("first difference: a slice of a buffer is compared with the same part of the whole one") {
  const auto update = [](const std::string& view, uint64_t direction, uint64_t sum) {
    return Record()
        .issue(1, "lamb_direction u", 0, {}, {{"slots:u", "slots:u", 1}}, false, true)
        .issue(1, "lamb_direction u", 0, {}, {{"direction:u", "direction:u", direction}}, true,
               true)
        .issue(1, "sum_squares u", 0, {{view, "direction:u", direction}}, {{"trust", "trust", sum}},
               false, true)
        .record;
  };
  const RankRecord plain = update("direction:u[8:16]", 2, 3);
  CHECK_FALSE(first(plain, update("direction:u[0:8]", 2, 3)));
  CHECK(first(plain, update("direction:u[0:8]", 5, 6))->instruction == "lamb_direction u");
  CHECK(first(plain, update("direction:u[0:8]", 2, 6))->instruction == "sum_squares u");
}

TEST_CASE(
    "first difference: a sum over ranks is compared slice by slice, and comes before its use") {
  const auto rank = [](bool scattered, uint64_t own, uint64_t slice, float gradient) {
    Record record;
    // The rank's own values, which a sum in place replaces.
    record.issue(1, "cast u", 0, {}, {{"m", "m", own}});
    if (scattered)
      record.issue(1, "reduce_scatter u", 0, {{"m", "m", own}}, {{"m[0:8]", "m", slice}});
    else
      record.issue(1, "all_reduce u", 0, {{"m", "m", own}},
                   {{"m", "m", 9}, {"m[0:8]", "m", slice}, {"m[8:16]", "m", 4}});
    return record.issue(1, "accumulate u", 0, {{"m[0:8]", "m", slice}}, {{"g", "g", slice}})
        .piece(1, "w", "gradient", "g", 0, {gradient})
        .record;
  };
  const RankRecord plain = rank(false, 1, 2, 1);
  CHECK_FALSE(first(plain, rank(true, 1, 2, 1)));
  CHECK(first(plain, rank(true, 1, 5, 2))->instruction == "reduce_scatter u");
}

TEST_CASE("first difference: of a plain pipeline's stages the one that computes something else") {
  const auto stage = [](bool last, uint64_t x, uint64_t y) {
    Record record;
    if (last) record.issue(1, "recv two", 0, {}, {{"x", "x", x}}, true);
    return record
        .issue(1, last ? "linear two" : "linear one", 0, {{last ? "x" : "ids", "x", last ? x : 0}},
               {{last ? "y" : "x", last ? "y" : "x", last ? y : x}})
        .record;
  };
  const std::vector<RankRecord> plain{stage(false, 1, 0), stage(true, 1, 2)};
  CHECK_FALSE(first_difference(plain, {plain, 1}));
  const std::vector<RankRecord> first_stage{stage(false, 7, 0), stage(true, 7, 8)};
  CHECK(first_difference(plain, {first_stage, 1})->instruction == "linear one");
  const std::vector<RankRecord> last_stage{stage(false, 1, 0), stage(true, 1, 8)};
  CHECK(first_difference(plain, {last_stage, 1})->instruction == "linear two");
  const std::vector<RankRecord> message{stage(false, 1, 0), stage(true, 7, 8)};
  CHECK(first_difference(plain, {message, 1})->instruction == "recv two");
}

TEST_CASE("first difference: a message that came as it was sent is not to blame") {
  const RankRecord plain_first =
      Record()
          .issue(1, "load_batch", 0, {}, {{"ids", "ids", 1}})
          .issue(1, "linear one", 0, {{"ids", "ids", 1}}, {{"a", "a", 2}})
          .issue(1, "linear two", 0, {{"a", "a", 2}}, {{"b", "b", 3}})
          .record;
  const RankRecord plain_last =
      Record().issue(1, "linear three", 0, {{"b", "b", 3}}, {{"c", "c", 4}}).record;
  // The first rank has the first layer and the third one.
  const RankRecord first = Record()
                               .issue(1, "load_batch", 0, {}, {{"ids", "ids", 1}})
                               .issue(1, "linear one", 0, {{"ids", "ids", 1}}, {{"a", "a", 2}})
                               .issue(1, "send two", 0, {{"a", "a", 2}}, {}, true)
                               .issue(1, "recv three", 0, {}, {{"b", "b", 8}}, true)
                               .issue(1, "linear three", 0, {{"b", "b", 8}}, {{"c", "c", 9}})
                               .record;
  const RankRecord last = Record()
                              .issue(1, "recv two", 0, {}, {{"a", "a", 7}}, true)
                              .issue(1, "linear two", 0, {{"a", "a", 7}}, {{"b", "b", 8}})
                              .issue(1, "send three", 0, {{"b", "b", 8}}, {}, true)
                              .record;
  const std::vector<RankRecord> configured{first, last};
  const auto found = first_difference({plain_first, plain_last}, {configured, 1});
  REQUIRE(found);
  CHECK(found->instruction == "recv two");
  CHECK(found->rank == 1);
}

TEST_CASE(
    "first difference: an input that was brought is to blame, unless it came as it was sent") {
  const RankRecord plain =
      Record().issue(1, "linear one", 0, {{"w", "w", 1}}, {{"y", "y", 2}}).record;
  const RankRecord gathered =
      Record()
          .issue(1, "all_gather u", 0, {{"s", "s", 7}}, {{"w", "w", 5}}, true)
          .issue(1, "linear one", 0, {{"w", "w", 5}}, {{"y", "y", 6}})
          .record;
  CHECK(first(plain, gathered)->instruction == "all_gather u");
  const RankRecord copied = Record()
                                .issue(1, "adam u", 0, {}, {{"h", "h", 5}})
                                .issue(1, "copy u", 0, {{"h", "h", 5}}, {{"w", "w", 5}}, true)
                                .issue(1, "linear one", 0, {{"w", "w", 5}}, {{"y", "y", 6}})
                                .record;
  CHECK(first(plain, copied)->instruction == "adam u");
}

TEST_CASE("first difference: of several ranks the one with the earliest instruction") {
  const std::vector<RankRecord> plain{chain(1, 2, 3), chain(1, 2, 3)},
      configured{chain(1, 2, 8), chain(1, 9, 8)};
  const auto found = first_difference(plain, {configured, 2});
  REQUIRE(found);
  CHECK(found->rank == 1);
  CHECK(found->instruction == "linear one");
}

TEST_CASE("first difference: gradients and state name the last instruction that wrote them") {
  const auto rank = [](float gradient, float weight) {
    return Record()
        .issue(1, "linear_weight_grad u", 0, {}, {{"g", "g", 1}})
        .issue(1, "reduce_scatter u", 0, {{"g", "g", 1}}, {{"s", "grads:u", 2}}, true)
        .piece(1, "w", "gradient", "grads:u", 0, {gradient})
        .issue(1, "adam u", 0, {}, {{"params:u[0:1]", "params:u", 3}}, false, true)
        .piece(1, "w", "master", "params:u", 0, {weight})
        .record;
  };
  CHECK_FALSE(first(rank(1, 2), rank(1, 2)));
  CHECK(first(rank(1, 2), rank(3, 2))->instruction == "reduce_scatter u");
  CHECK(first(rank(1, 2), rank(1, 3))->instruction == "adam u");
  CHECK(first(rank(1, 2), rank(1, 3))->buffer == "master of w");
}

TEST_CASE("first difference: micro-batch m of rank r is micro-batch m N + r of one rank") {
  const auto one = [](uint64_t y, int micro) {
    return Record().issue(1, "linear one", micro, {}, {{"y", "y", y}}).record;
  };
  RankRecord naive = one(1, 0);
  naive.append(one(2, 1));
  const std::vector<RankRecord> equal{one(1, 0), one(2, 0)}, other{one(1, 0), one(3, 0)};
  CHECK_FALSE(first_difference_of_micro_batches(naive, {equal, 2}));
  const auto found = first_difference_of_micro_batches(naive, {other, 2});
  REQUIRE(found);
  CHECK(found->rank == 1);
  CHECK(found->micro_batch == 0);
}

TEST_CASE(
    "first difference: parts of a data-parallel rank's micro-batches are on its layer ranks") {
  const auto one = [](uint64_t y, int micro) {
    return Record().issue(1, "linear one", micro, {}, {{"y", "y", y}}).record;
  };
  RankRecord naive = one(1, 0);
  naive.append(one(2, 1));
  // Two data-parallel ranks of two tensor ranks each, which have y whole.
  const std::vector<RankRecord> equal{one(1, 0), one(1, 0), one(2, 0), one(2, 0)},
      other{one(1, 0), one(1, 0), one(2, 0), one(3, 0)};
  CHECK_FALSE(first_difference_of_micro_batches(naive, {equal, 2, 2}));
  CHECK(first_difference_of_micro_batches(naive, {other, 2, 2})->rank == 3);
  CHECK_FALSE(first_difference(equal, {equal, 2, 2}));
  CHECK(first_difference(equal, {other, 2, 2})->rank == 3);
}

}  // namespace dstrain
