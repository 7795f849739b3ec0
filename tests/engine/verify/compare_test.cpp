#include "runtime/engine/verify/compare.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

// Makes records by hand.
class Record {
 public:
  struct Operand {
    std::string name, root;
    uint64_t checksum;
  };

  Record& issue(int step, const std::string& title, int micro, const std::vector<Operand>& inputs,
                const std::vector<Operand>& outputs, bool moves = false, bool at_end = false) {
    record.issues.push_back({.step = step,
                             .title = index(title),
                             .micro = micro,
                             .at_end = at_end,
                             .moves = moves,
                             .computes = !moves,
                             .inputs = static_cast<int32_t>(inputs.size()),
                             .outputs = static_cast<int32_t>(outputs.size()),
                             .first = static_cast<int64_t>(record.values.size())});
    for (const auto* list : {&inputs, &outputs})
      for (const Operand& o : *list)
        record.values.push_back({index(o.name), index(o.root), 8, o.checksum});
    return *this;
  }
  Record& piece(int step, const std::string& name, const std::string& slot, const std::string& root,
                int64_t begin, const std::vector<float>& values) {
    record.pieces.push_back({.step = step,
                             .name = index(name),
                             .slot = index(slot),
                             .root = index(root),
                             .begin = begin,
                             .count = static_cast<int64_t>(values.size()),
                             .first = static_cast<int64_t>(record.floats.size()),
                             .at = static_cast<int64_t>(record.issues.size())});
    record.floats.insert(record.floats.end(), values.begin(), values.end());
    return *this;
  }
  Record& step(int64_t number, double loss, double norm) {
    record.steps.push_back({.step = number, .loss = loss, .norm = norm});
    return *this;
  }

  RankRecord record;

 private:
  int32_t index(const std::string& name) {
    record.names.push_back(name);
    return static_cast<int32_t>(record.names.size()) - 1;
  }
};

// A step that loads x, and computes y and then z of it.
RankRecord chain(uint64_t x, uint64_t y, uint64_t z, const std::string& prefix = "") {
  return Record()
      .issue(1, "load_batch", 0, {}, {{"x", "x", x}})
      .issue(1, "linear one", 0, {{"x", "x", x}}, {{prefix + "y", "y", y}})
      .issue(1, "linear two", 0, {{prefix + "y", "y", y}}, {{"z", "z", z}})
      .record;
}

std::optional<FirstDifference> first(const RankRecord& plain, const RankRecord& mine) {
  const std::vector<RankRecord> configured{mine};
  return first_difference({plain}, {configured, 1});
}

// Records of one rank with a weight of two elements, whose gradient is `gradient`.
RankRecord trained(const std::vector<float>& gradient, const std::vector<float>& weight,
                   double loss = 2) {
  double squares = 0;
  for (const float g : gradient) squares += static_cast<double>(g) * static_cast<double>(g);
  return Record()
      .piece(1, "w", "gradient", "grads:u", 0, gradient)
      .piece(1, "w", "master", "params:u", 0, weight)
      .step(1, loss, std::sqrt(squares))
      .record;
}

Comparison compared(const RankRecord& naive, const RankRecord& plain, const RankRecord& mine) {
  Job job = job_of(BenchmarkModel{});
  job.batch = {.train_batch = 1, .micro_batch = 1, .accumulation = 1};
  return compare_runs(job, {naive, {plain}, {mine}});
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
  CHECK_FALSE(first(chain(1, 2, 3), chain(1, 2, 3, "re:")));
  CHECK(first(chain(1, 2, 3), chain(1, 2, 9, "re:"))->instruction == "linear two");
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

TEST_CASE("comparison: parts of a tensor are compared as the whole one") {
  const auto tensor_rank = [](int64_t begin, std::vector<float> gradient) {
    return Record()
        .piece(1, "w", "gradient", "grads:u", begin, gradient)
        .piece(1, "w", "master", "params:u", begin, gradient)
        .step(1, 2, 5)
        .record;
  };
  Job job = job_of(BenchmarkModel{});
  job.ranks = job.tensor_ranks = 2;
  job.batch = {.train_batch = 1, .micro_batch = 1, .accumulation = 1};
  const RankRecord naive = tensor_rank(0, {3, 4});
  const std::vector<RankRecord> parts{tensor_rank(0, {3}), tensor_rank(1, {4})};
  const Comparison equal = compare_runs(job, {naive, parts, parts});
  CHECK(equal.equal);
  CHECK_THAT(comparison_text(equal),
             Catch::Contains("the bits of plain training on the same sequence and tensor ranks"));
  const Comparison missing = compare_runs(job, {naive, parts, {parts[0], parts[0]}});
  CHECK_FALSE(missing.equal);
  const Comparison other =
      compare_runs(job, {naive, parts, {tensor_rank(0, {3}), tensor_rank(1, {5})}});
  CHECK_FALSE(other.equal);
  CHECK(other.tensors[0].gradient_error == Approx(0.25));
}

TEST_CASE("comparison: equal runs, and what is not") {
  const RankRecord a = trained({1, 2}, {3, 4});
  const Comparison equal = compared(a, a, a);
  CHECK(equal.equal);
  REQUIRE(equal.tensors.size() == 1);
  CHECK(equal.tensors[0].gradient_error == 0);
  CHECK(equal.tensors[0].bitwise);

  // A gradient within the tolerance of one micro-batch, and one that is not.
  CHECK(compared(trained({1, 2 + 0x1p-22F}, {3, 4}), a, a).equal);
  const Comparison far = compared(trained({1, 2.5F}, {3, 4}), a, a);
  CHECK_FALSE(far.equal);
  CHECK(far.tensors[0].gradient_error == Approx(0.2));
  CHECK(far.problems.size() == 1);

  const Comparison bits = compared(a, a, trained({1, 2}, {3, 5}));
  CHECK_FALSE(bits.equal);
  CHECK_FALSE(bits.tensors[0].bitwise);
  CHECK_FALSE(compared(a, a, trained({1, 2}, {3, 4}, 2.1)).equal);
  CHECK_FALSE(compared(a, a, trained({1, NAN}, {3, 4})).equal);
}

TEST_CASE("comparison: a gradient may be a small sum of large terms, and its norm is its own") {
  RankRecord naive = trained({0.001F}, {3});
  naive.terms.push_back({.name = naive.pieces[0].name, .largest = 1e4});
  RankRecord mine = trained({0.002F}, {3});
  CHECK(compared(naive, mine, mine).equal);
  mine.steps[0].norm = 0.003;
  const Comparison c = compared(naive, mine, mine);
  CHECK_FALSE(c.equal);
  CHECK_THAT(c.problems.front(), Catch::Contains("step 1: gradient norm 0.003"));
}

TEST_CASE("comparison: ranks that hold the same elements must agree") {
  const RankRecord a = trained({1, 2}, {3, 4}), b = trained({1, 2}, {3, 5});
  Job job = job_of(BenchmarkModel{});
  job.ranks = 2;
  job.batch = {.train_batch = 2, .micro_batch = 1, .accumulation = 1};
  CHECK(compare_runs(job, {a, {a, a}, {a, a}}).equal);
  CHECK_FALSE(compare_runs(job, {a, {a, a}, {b, a}}).equal);
  CHECK_FALSE(compare_runs(job, {a, {a, a}, {a, b}}).equal);
}

TEST_CASE("comparison: a failure of the configured run is a difference") {
  const RankRecord a = trained({1, 2}, {3, 4});
  RankRecord failed = trained({1, 2}, {3, 4});
  failed.error = "step 1: a gradient is not finite";
  const Comparison c = compared(a, a, failed);
  CHECK_FALSE(c.equal);
  CHECK(c.problems.front() == failed.error);
}

TEST_CASE("comparison: a step that sends other bytes than its plan says is a difference") {
  const RankRecord a = trained({1, 2}, {3, 4});
  RankRecord more = trained({1, 2}, {3, 4});
  more.steps[0].sent = 8;
  const Comparison c = compared(a, a, more);
  CHECK_FALSE(c.equal);
  CHECK(c.problems.front() == "step 1: rank 0 sent 8 bytes, and its plan says 0");
}

TEST_CASE("comparison: the JSON has the members of its format") {
  const RankRecord a = trained({1, 2}, {3, 4});
  const auto json = nlohmann::json::parse(comparison_json(compared(a, a, trained({1, 2}, {3, 5}))));
  CHECK(json["equal"] == false);
  CHECK(json["steps"] == 1);
  CHECK(json["tolerance"].get<double>() == Approx(4 * 0x1p-24));
  CHECK(json["tensors"][0]["name"] == "w");
  CHECK(json["tensors"][0]["gradient_error"] == 0);
  CHECK(json["tensors"][0]["bitwise"] == false);
  CHECK(json["first"]["rank"] == 0);
  CHECK(json["first"]["micro_batch"] == 0);
  CHECK(json["first"]["instruction"].is_string());
  CHECK(nlohmann::json::parse(comparison_json(compared(a, a, a)))["first"].is_null());
}

TEST_CASE("record: bytes bring it back, and cut ones are refused") {
  RankRecord record = chain(1, 2, 3);
  record.append(trained({1, 2}, {3, 4}));
  record.fault = "a flipped bit";
  const std::string bytes = record.to_bytes();
  const RankRecord back = RankRecord::from_bytes(bytes);
  CHECK(back.names == record.names);
  CHECK(back.floats == record.floats);
  CHECK(back.issues.size() == 3);
  CHECK(back.pieces.size() == 2);
  CHECK(back.fault == record.fault);
  CHECK(back.name(back.pieces[1].slot) == "master");
  CHECK_THROWS_AS(RankRecord::from_bytes(bytes.substr(0, bytes.size() / 2)), RunError);
}

TEST_CASE("comparison: numbers that plain training loses too are said to be lost") {
  const auto run = [](double loss, double norm) {
    return Record()
        .piece(1, "w", "gradient", "grads:u", 0, {1})
        .piece(2, "w", "master", "params:u", 0, {1})
        .step(1, 2, 1)
        .step(2, loss, norm)
        .record;
  };
  constexpr double lost = std::numeric_limits<double>::quiet_NaN();
  CHECK_FALSE(compared(run(2, 1), run(2, 1), run(2, 1)).diverged);
  const Comparison both = compared(run(lost, 1), run(lost, 1), run(lost, 1));
  CHECK(both.diverged == 2);
  CHECK_THAT(comparison_text(both), Catch::Contains("step 2: no finite loss or gradient norm"));
  CHECK(nlohmann::json::parse(comparison_json(both)).at("diverged") == 2);
  const Comparison alone = compared(run(2, 1), run(2, 1), run(lost, 1));
  CHECK_FALSE(alone.equal);
  CHECK_FALSE(alone.diverged);
}

}  // namespace dstrain
