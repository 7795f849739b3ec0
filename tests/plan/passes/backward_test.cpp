#include <catch2/catch.hpp>

#include "tests/plan/plans.h"
#include "tests/support/models.h"

using namespace dstrain;

TEST_CASE("the backward pass of a benchmark layer follows from its rule") {
  Job job;
  job.model = BenchmarkModel{.n_layer = 2, .in_size = 3, .hidden_size = 5, .out_size = 4};
  job.batch = {4, 2, 2};
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*.bias"};
  const Plan plan = train_plan(job);
  CHECK(op_names(plan, "layers.1") ==
        std::vector<std::string>{"linear", "cross_entropy", "activation_grad", "linear_input_grad",
                                 "linear_weight_grad", "sum_rows", "adam", "adam"});
  // The samples need no gradient, so the first layer has no input gradient.
  CHECK(op_names(plan, "layers.0") == std::vector<std::string>{"linear", "activation_grad",
                                                               "linear_weight_grad", "sum_rows",
                                                               "adam", "adam"});
}

TEST_CASE("a tied head adds to the embedding's gradient and is one parameter") {
  Job job = small_job();
  job.model.set("tied_head", true);
  const Plan plan = train_plan(job);
  for (const Parameter& p : plan.program.parameters) CHECK(p.name != "lm_head.weight");
  std::vector<Accumulate> modes;
  const BufferId gradient = plan.program.parameters[0].gradient;
  for (const Instruction& op : plan.program.instructions)
    if (!op.writes.empty() && op.writes[0] == gradient) modes.push_back(op.accumulate);
  CHECK(modes == std::vector{Accumulate::after_first_micro, Accumulate::always});
}
