// Ranks that have parts of the same layers (tensor parallelism) and of the same samples (sequence parallelism) train as one
// rank does. mpirun starts this program.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "launcher/implementations.h"
#include "runtime/comm/world.h"
#include "runtime/engine/run/trainer.h"
#include "tests/engine/layers/layer_layouts.h"
#include "tests/engine/test_rank.h"
#include "tests/support/distance.h"
#include "tests/support/sample.h"
#include "tests/support/skip.h"

namespace dstrain {

namespace {

// The gradients of step 1, by the name of the tensor.
using Tensors = std::map<std::string, std::vector<float>>;

// Returns the gradients of the first step of a job, whole; on rank 0 only. A step of SGD is so long that the weights are
// its multiple of the gradients afterwards, and what they were before is lost in the rounding. Collective.
Tensors first_gradients(Job job, const Dataset& data, Communicator& world) {
  constexpr double kRate = 0x1p40;
  job.optimizer = {.kind = OptimizerKind::sgd, .lr = kRate};
  job.gradient_clipping = 0;
  RunContext context{implementations()};
  context.comm = &world;
  Trainer trainer(job, data, context, make_backend(implementations(), job.device));
  trainer.load();
  trainer.step();
  Tensors gradients;
  trainer.model().collect_weights(
      trainer.mesh(), [&](const Parameter& p, int64_t begin, const Tensor& values) {
        std::vector<float>& all = gradients[p.name];
        all.resize(static_cast<size_t>(p.shape.elements()));
        for (int64_t i = 0; i < values.elements(); ++i)
          all[static_cast<size_t>(begin + i)] = -values.as<float>()[i] / static_cast<float>(kRate);
      });
  return gradients;
}

// Checks of each tensor that no element is further from what is expected than a share of the tensor's largest.
void check_gradients(const Tensors& expected, const Tensors& gradients, double share) {
  REQUIRE(gradients.size() == expected.size());
  for (const auto& [name, values] : expected) {
    INFO(name);
    REQUIRE(gradients.contains(name));
    const double largest = largest_magnitude(values);
    CHECK(largest > 0);
    CHECK(largest_distance(values, gradients.at(name)) <= share * largest);
  }
}

}  // namespace

TEST_CASE("ranks that divide layers and samples have the gradients of one rank") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(5);
  for (const Layout& layout : layouts_of(world->size()))
    for (const ModelConfig& model : models_of(layout)) {
      if (!sample.takes()) continue;
      const Job job = layers_job(model, layout);
      INFO(describe(layout) << ": " << describe(job));
      const Tensors gradients = first_gradients(job, data, *world);
      if (world->rank() != 0) continue;
      SelfComm self;
      check_gradients(first_gradients(alone_job(job), data, self), gradients, 1e-5);
    }
}

TEST_CASE(
    "ranks that divide layers and samples learn what one rank learns, of packed documents too") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(6);
  for (const Layout& layout : layouts_of(world->size()))
    for (const ModelConfig& model : models_of(layout))
      for (const Packing packing : {Packing::none, Packing::pack}) {
        if (!sample.takes()) continue;
        Job job = layers_job(model, layout);
        job.data.packing = packing;
        INFO(describe(layout) << ": " << describe(job)
                              << (packing == Packing::pack ? ", packed" : ""));
        const RunResult result = run_steps(job, data, *world, kLayerSteps);
        check_near(alone(job, data), result, 2e-6, distance_of(model));
        CHECK(result.sent_per_step == result.planned_to_send);
      }
}

TEST_CASE(
    "ranks that divide layers and samples have the same bits at every stage, again and offloaded") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(8);
  for (const Layout& layout : layouts_of(world->size()))
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const ModelConfig& model : models_of(layout)) {
        if (!sample.takes()) continue;
        Job job = layers_job(model, layout, dtype);
        const RunResult expected = run_steps(job, data, *world, 3);
        for (const int stage : {0, 1, 2, 3}) {
          constexpr RecomputeMode kModes[]{RecomputeMode::none, RecomputeMode::selective,
                                           RecomputeMode::none, RecomputeMode::interval};
          job.zero_stage = stage;
          job.recompute = {kModes[stage], 1};
          job.overlap_comm = stage % 2 == 1;
          job.overlap_tensor = stage == 2 || stage == 3;
          job.gather = {.param_persistence = 0, .max_reuse_distance = 0};
          INFO(describe(layout) << ": " << describe(job));
          CHECK(difference(expected, run_steps(job, data, *world, 3, 1 + stage % 2), *world) == "");
        }
        job.offload.optimizer = job.offload.parameters = OffloadTo::cpu;
        job.offload.optimizer_on = UpdateOn::host;
        INFO(describe(layout) << ": " << describe(job));
        CHECK(difference(expected, run_steps(job, data, *world, 3), *world) == "");
      }
}

TEST_CASE("ranks that divide layers and samples stay within the rounding of 16 bits") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  Sample sample(5);
  for (const Layout& layout : layouts_of(world->size()))
    for (const ModelConfig& model : models_of(layout)) {
      if (!sample.takes()) continue;
      const Job job = layers_job(model, layout, DType::bf16);
      INFO(describe(layout) << ": " << describe(job));
      check_rounding(alone_in_fp32(job, data), alone(job, data),
                     run_steps(job, data, *world, kLayerSteps), 2e-2);
    }
}

TEST_CASE("ranks that divide layers and samples do so on emulated devices") {
  const RandomDataset data(13, 0.1);
  const auto world = make_communicator();
  SKIP_UNLESS(world->size() == 2, "the emulated device is slow: on 2 ranks only");
  Sample sample(4);
  for (const Layout& layout : layouts_of(2))
    for (const ModelConfig& model : models_of(layout))
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (!sample.takes()) continue;
        Job job = layers_job(model, layout, dtype);
        job.batch = {2, 2, 1};
        const RunResult cpu = run_steps(job, data, *world, 1);
        job.device = DeviceChoice::emulated;
        job.zero_stage = 3;
        INFO(describe(layout) << ": " << describe(job));
        const RunResult device = run_steps(job, data, *world, 1, 1,
                                           make_backend(implementations(), DeviceChoice::emulated));
        const double tolerance = dtype == DType::f32 ? 1e-5 : 2e-2;
        CHECK(device.loss[0] == Approx(cpu.loss[0]).epsilon(tolerance));
        CHECK(device.norm[0] == Approx(cpu.norm[0]).epsilon(tolerance));
      }
}

}  // namespace dstrain
