#include <catch2/catch.hpp>
#include <string>

#include "tests/optim/lone_unit.h"

namespace dstrain {
namespace {

// Returns the ranges of runs, each as "BEGIN-END".
std::vector<std::string> ranges(const std::vector<UpdateRun>& runs) {
  std::vector<std::string> list;
  for (const UpdateRun& run : runs)
    list.push_back(std::to_string(run.range.begin) + "-" + std::to_string(run.range.end) +
                   (run.matrix ? " " + run.matrix->name : ""));
  return list;
}

using Ranges = std::vector<std::string>;

TEST_CASE("parameters with the same settings are one run, with the padding behind them") {
  Job job;
  Program program = lone_program(job.optimizer);
  CHECK(ranges(LoneUpdate(program, job).runs()) == Ranges{"0-16"});
  CHECK(ranges(LoneUpdate(program, job).parameters()) == Ranges{"0-8", "8-12"});
  job.optimizer.weight_decay = 0.5;
  job.weight_decay_exclude = {"*.bias"};
  const LoneUpdate update(program, job);
  CHECK(ranges(update.runs()) == Ranges{"0-8", "8-16"});
  CHECK(update.runs()[0].settings == GroupSettings{.weight_decay = 0.5f});
  CHECK(update.runs()[1].settings == GroupSettings{});
}

TEST_CASE("a group's own settings come before those of the optimizer") {
  Job job;
  job.optimizer.weight_decay = 0.5;
  job.weight_decay_exclude = {"*"};
  job.model.set_fine_tuning(
      {.groups = {{.match = {"*.bias"}, .lr_scale = 0.25, .weight_decay = 0.125}}});
  Program program = lone_program(job.optimizer);
  const LoneUpdate update(program, job);
  REQUIRE(update.runs().size() == 2);
  CHECK(update.runs()[0].settings == GroupSettings{});
  CHECK(update.runs()[1].settings == GroupSettings{.weight_decay = 0.125f, .lr_scale = 0.25f});
}

TEST_CASE("a rank has the runs of its own elements alone, and all parameters") {
  Job job;
  job.weight_decay_exclude = {"*.bias"};
  job.optimizer.weight_decay = 0.5;
  Program program = lone_program(job.optimizer);
  LoneUpdate first(program, job, {0, 4}, 4);
  CHECK(ranges(first.runs()) == Ranges{"0-4"});
  CHECK(ranges(first.parameters()) == Ranges{"0-8", "8-12"});
  CHECK(first.sharded());
  CHECK(first.slice_of(0).end == 4);
  CHECK(first.slice_of(3).begin == 12);
  CHECK(ranges(LoneUpdate(program, job, {4, 12}).runs()) == Ranges{"4-8", "8-12"});
}

TEST_CASE("padding behind a matrix belongs to nobody") {
  Job job;
  job.optimizer.kind = OptimizerKind::muon;
  Program program = lone_program(job.optimizer);
  std::swap(program.parameters[0].offset, program.parameters[1].offset);
  program.parameters[1].offset = 0;
  program.parameters[0].offset = 4;
  program.units[0].parameters = {1, 0};
  LoneUpdate update(program, job);
  CHECK(ranges(update.runs()) == Ranges{"0-4", "4-12 blocks.0.weight"});
  CHECK(update.has_matrices());
  // Also on a rank that updates nothing of the matrix.
  CHECK(LoneUpdate(program, job, {0, 4}).has_matrices());
  CHECK_FALSE(LoneUpdate(program, job, {0, 4}).runs().back().matrix);
}

TEST_CASE("weights have a copy in the run's dtype where the masters are apart") {
  Job job;
  Program program = lone_program(job.optimizer);
  LoneUpdate update(program, job);
  CHECK(update.copy({0, 16}) == kNone);
  CHECK(update.master({0, 16}) == update.buffers().values.id);
  const BufferId master = update.add_buffer("master", 16, Lifetime::persistent);
  CHECK(program.at(master).name == "master:blocks.0");
  update.buffers().separate_master = {master};
  CHECK(update.copy({0, 16}) == update.buffers().values.id);
  CHECK(update.master({0, 16}) == master);
  CHECK(update.slot(2, {0, 16}) == kNone);
}

}  // namespace
}  // namespace dstrain
