#include "runtime/engine/verify/compare.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "tests/engine/verify/records.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

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

TEST_CASE("comparison: what shows nothing is not equal") {
  const RankRecord a = trained({1, 2}, {3, 4});
  const auto check = [](const Comparison& c, const std::string& why) {
    CHECK_FALSE(c.equal);
    CHECK(c.problems.empty());
    CHECK(verdict_of(c) == "not compared");
    REQUIRE(c.not_compared.size() == 1);
    CHECK_THAT(c.not_compared.front(), Catch::Contains(why));
    CHECK_THAT(comparison_text(c), Catch::Contains("\nnot compared: "));
    const auto json = nlohmann::json::parse(comparison_json(c));
    CHECK(json.at("equal") == false);
    CHECK(json.at("verdict") == "not compared");
    CHECK(json.at("not_compared").size() == 1);
    CHECK(json.at("first").is_null());
  };
  RankRecord seeded = a;
  seeded.fault = "a flipped bit";
  check(compared(a, a, seeded), "the seeded fault has changed no value that is compared");
  RankRecord skipped = a;
  skipped.steps[0].skipped = 1;
  check(compared(skipped, skipped, skipped), "every step is skipped");
  RankRecord lost = a;
  lost.steps[0].loss = NAN;
  check(compared(lost, lost, lost), "the first step has no finite loss");
  RankRecord more = Record().piece(1, "w", "exp_avg", "exp_avg:u", 0, {1, 2}).record;
  more.append(a);
  check(compared(a, a, more), "exp_avg of w on rank 0");
  CHECK(verdict_of(compared(a, a, a)) == "equal");
  CHECK(verdict_of(compared(a, a, trained({1, 2}, {3, 5}))) == "different");
}

TEST_CASE("comparison: the JSON has the members of its format") {
  const RankRecord a = trained({1, 2}, {3, 4});
  const auto json = nlohmann::json::parse(comparison_json(compared(a, a, trained({1, 2}, {3, 5}))));
  CHECK(json["equal"] == false);
  CHECK(json["verdict"] == "different");
  CHECK(json["not_compared"].empty());
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
  RankRecord record = Record()
                          .issue(1, "load_batch", 0, {}, {{"x", "x", 1}})
                          .issue(1, "linear one", 0, {{"x", "x", 1}}, {{"y", "y", 2}})
                          .record;
  record.append(trained({1, 2}, {3, 4}));
  record.fault = "a flipped bit";
  const std::string bytes = record.to_bytes();
  const RankRecord back = RankRecord::from_bytes(bytes);
  CHECK(back.names == record.names);
  CHECK(back.floats == record.floats);
  CHECK(back.issues.size() == 2);
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
