#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/plan/report/print.h"
#include "runtime/plan/report/traffic.h"
#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// Two micro-batches of 4 samples of 8 tokens a data-parallel rank.
Job axes_job(int stages, int data, int sequence, int tensor) {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 32, .n_head = 4, .block_size = 8, .vocab_size = 13};
  job.pipeline.stages = stages;
  job.sequence_ranks = sequence;
  job.tensor_ranks = tensor;
  job.ranks = stages * data * sequence * tensor;
  job.batch = {8 * data, 4, 2};
  return job;
}

AxisBytes bytes_of(int stages, int data, int sequence, int tensor) {
  return bytes_by_axis(plan_of(axes_job(stages, data, sequence, tensor), 0).train);
}

}  // namespace

TEST_CASE("bytes by axis: of one axis all that a rank sends, of several ones they add up to it") {
  const AxisBytes data = bytes_of(1, 2, 1, 1), sequence = bytes_of(1, 1, 2, 1),
                  tensor = bytes_of(1, 1, 1, 2), pipe = bytes_of(2, 1, 1, 1);
  CHECK(data == AxisBytes{.data = data.total()});
  CHECK(sequence == AxisBytes{.sequence = sequence.total()});
  CHECK(tensor == AxisBytes{.tensor = tensor.total()});
  CHECK(pipe == AxisBytes{.pipe = pipe.total()});
  for (const AxisBytes& one : {data, sequence, tensor, pipe}) CHECK(one.total() > 0);
  const Plan all = plan_of(axes_job(2, 2, 2, 2), 5).train;
  const AxisBytes bytes = bytes_by_axis(all);
  CHECK(bytes.total() == wire_bytes(all));
  for (const int64_t sent : {bytes.data, bytes.sequence, bytes.tensor, bytes.pipe}) CHECK(sent > 0);
}

TEST_CASE("bytes by axis: of messages, activations and heads") {
  const int64_t rows = 4 * 8, columns = 32, f32 = 4, micro_batches = 2, blocks = 2;
  CHECK(bytes_of(2, 1, 1, 1).pipe == micro_batches * rows * columns * f32);
  // Half of queries, keys, values and results of a rank's rows, and of their gradients, leaves the rank.
  const Plan plan = plan_of(axes_job(1, 2, 2, 1), 0).train;
  CHECK(bytes_by_axis(plan).sequence ==
        2 * micro_batches * blocks * (3 + 1) * (rows / 2) * columns * f32 / 2);
  CHECK(bytes_by_axis(plan).data == 2 * sent_on(plan, kStateAxes));  // all-reduces
}

TEST_CASE("the printed plan has a line for each axis that has ranks") {
  const RankPlan rank = plan_of(axes_job(2, 2, 2, 2), 3);
  const std::string text = plan_to_text(rank, "t");
  for (const char* const line :
       {"\nsent a step among 2 data-parallel ranks: ", "\nsent a step among 2 tensor ranks: ",
        "\nsent a step among 2 sequence ranks: ", "\nsent a step among 2 pipeline stages: "})
    CHECK_THAT(text, Catch::Contains(line));
  const auto bytes = nlohmann::json::parse(plan_to_json(rank))["comm_bytes_by_axis"];
  const AxisBytes expected = bytes_by_axis(rank.train);
  CHECK(bytes["data"] == expected.data);
  CHECK(bytes["tensor"] == expected.tensor);
  CHECK(bytes["sequence"] == expected.sequence);
  CHECK(bytes["pipe"] == expected.pipe);
  CHECK(bytes.size() == 4);
  CHECK_THAT(plan_to_text(plan_of(axes_job(1, 1, 1, 2), 0), "t"),
             Catch::Contains("sent a step among 2 tensor ranks: ") &&
                 !Catch::Contains("sent a step among 2 data") &&
                 !Catch::Contains("sequence ranks"));
  CHECK_THAT(plan_to_text(plan_of(axes_job(1, 2, 1, 1), 0), "t"),
             !Catch::Contains("sent a step among"));
}

TEST_CASE("a tensor group on several hosts is warned of") {
  const auto warning = [](const Job& job, const std::vector<int>& hosts) {
    return tensor_hosts_warning(place_of(job, 0), hosts);
  };
  const Job job = axes_job(1, 2, 1, 2);
  CHECK(warning(job, {0, 0, 0, 0}).empty());
  CHECK(warning(job, {0, 0, 1, 1}).empty());
  CHECK_THAT(warning(job, {0, 0, 0, 1}),
             Catch::StartsWith("the tensor group of ranks 2 to 3 is on 2 hosts: "));
  CHECK_THAT(warning(axes_job(1, 1, 1, 4), {0, 0, 1, 1}),
             Catch::StartsWith("the tensor group of ranks 0 to 3 is on 2 hosts: "));
  CHECK(warning(axes_job(1, 4, 1, 1), {0, 1, 2, 3}).empty());
}
