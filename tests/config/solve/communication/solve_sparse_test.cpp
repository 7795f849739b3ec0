// sparse_gradients: where rows of tokens travel, what the verdict says, and what they do not go with.
#include <catch2/catch.hpp>

#include "runtime/config/sparse_gradients.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

// A model of 8 tokens a sample and 16 channels, with two samples in a micro-batch.
std::string sparse(const std::string& vocabulary, const std::string& more = "",
                   const std::string& model = "") {
  return trains_with(
      R"("sparse_gradients": true, )" + more +
      R"("dstrain": {"model": {"n_layer": 1, "n_embd": 16, "n_head": 2, "block_size": 8)" + model +
      vocabulary + "}}");
}

const std::string kLarge = R"(, "vocab_size": 1000)", kSmall = R"(, "vocab_size": 17)";

std::string verdict_of(const std::string& config, int64_t ranks) {
  return verdict(ask(config, {}, ranks).check(), "sparse_gradients");
}

}  // namespace

TEST_CASE("sparse_gradients: the bytes of rows and of the table, for each way of adding") {
  const Job job = ask(sparse(kLarge), {}, 2).job();
  CHECK(job.sparse_gradients);
  CHECK(sparse_gradient_bytes(job).rows == 16 * (16 * 4 + 4));
  CHECK(sparse_gradient_bytes(job).table == 1000 * 16 * 4);
  CHECK(sends_token_rows(job));
  const Job four =
      ask(sparse(kLarge, R"("gradient_accumulation_steps": 3, "bf16": {"enabled": true}, )"), {}, 4)
          .job();
  CHECK(sparse_gradient_bytes(four).rows == 3 * 3 * 16 * (16 * 2 + 4));
  CHECK(sparse_gradient_bytes(four).table == 2 * 3 * 1000 * 16 * 2 / 4);
  Job each = four;
  each.reduce = ReduceMode::micro_batch;
  CHECK(sparse_gradient_bytes(each).rows == sparse_gradient_bytes(four).rows);
  CHECK(sparse_gradient_bytes(each).table == 3 * sparse_gradient_bytes(four).table);
}

TEST_CASE(
    "sparse_gradients: rows travel only where they are fewer bytes and nothing else needs the "
    "table") {
  const Job job = ask(sparse(kLarge), {}, 2).job();
  CHECK_FALSE(sends_token_rows(ask(sparse(kSmall), {}, 2).job()));
  CHECK_FALSE(sends_token_rows(ask(sparse(kLarge), {}, 1).job()));
  Job many = job;  // of so many micro-batches that their rows are more than the table
  many.batch.accumulation = 58;
  CHECK(sends_token_rows(many));
  many.batch.accumulation = 59;
  CHECK_FALSE(sends_token_rows(many));
  many.reduce = ReduceMode::micro_batch;
  CHECK(sends_token_rows(many));
  Job tied = job;
  tied.model.set("tied_head", true);
  CHECK_FALSE(sends_token_rows(tied));
  Job other = job;
  other.zero_stage = 1;
  CHECK_FALSE(sends_token_rows(other));
  other = job;
  other.sparse_gradients = false;
  CHECK_FALSE(sends_token_rows(other));
}

TEST_CASE("sparse_gradients: the verdict says what travels and why") {
  CHECK(verdict_of(sparse(kLarge), 2) ==
        "honoured: a rank sends 1.09 kB of rows a step instead of 64.0 kB of the table");
  CHECK(verdict_of(sparse(kSmall), 2) ==
        "no_effect: a rank sends the table, which takes 1.09 kB a step: rows take 1.09 kB");
  CHECK(verdict_of(sparse(kLarge), 1) == "no_effect: one rank: there are no gradients to send");
  const std::string open =
      "honoured: rows of tokens or the table, whichever is fewer bytes: dstrain plan says which, "
      "when the number of ranks and the vocabulary are known";
  CHECK(verdict_of(sparse(kLarge), 0) == open);
  CHECK(verdict_of(sparse(""), 2) == open);
  CHECK(verdict_of(sparse(kLarge, "", R"(, "tied_head": true)"), 2) ==
        "no_effect: the head is tied to the token embedding, whose gradient is dense then");
  CHECK(verdict_of(trains_with(R"("sparse_gradients": true, "dstrain": {"model": {"type": )"
                               R"("benchmark", "in_size": 8, "hidden_size": 8, "out_size": 4}})"),
                   2) == "no_effect: the model has no token embedding");
}

TEST_CASE("sparse_gradients: what it does not go with") {
  const auto refusal = [](const std::string& with) {
    return ask(trains_with(R"("sparse_gradients": true, )" + with), {}, 2).error();
  };
  for (const int stage : {1, 2, 3})
    CHECK_THAT(refusal(fmt::format(R"("zero_optimization": {{"stage": {}}})", stage)),
               Catch::Contains("here from stage 1 on"));
  CHECK_THAT(refusal(R"("pipeline": {"stages": 2}, "gradient_accumulation_steps": 2)"),
             Catch::Contains("pipeline.stages: sparse_gradients runs without a pipeline"));
  for (const char* type : {"OneBitAdam", "OneBitLamb", "ZeroOneAdam"})
    CHECK_THAT(refusal(fmt::format(R"("optimizer": {{"type": "{}"}})", type)),
               Catch::Contains("optimizer.type: it says how gradients travel"));
  for (const char* type : {"powerSGD", "post_localSGD"})
    CHECK_THAT(refusal(fmt::format(R"("dstrain": {{"comm_hook": {{"type": "{}"}}}})", type)),
               Catch::Contains("dstrain.comm_hook.type: it says how gradients travel"));
  CHECK_THAT(refusal(R"("zero_optimization": {"offload_optimizer": {"device": "cpu"}})"),
             Catch::Contains("sparse_gradients adds and updates on the device"));
}
