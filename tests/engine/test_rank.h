// TestRank: memory, kernels and an executor for one training plan, without files and without a launcher.
#pragma once

#include <random>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/engine/run/model_state.h"
#include "runtime/engine/step/executor.h"
#include "runtime/optim/loss_scaler.h"

namespace dstrain {

// A dataset of random samples: token ids or f32 features, and targets. Each sample depends only on its number,
// so that all ranks and runs read the same ones. `ignored`: the share of targets that do not count (-1).
class RandomDataset : public Dataset {
 public:
  RandomDataset(int64_t vocab, double ignored = 0) : ignored_(ignored) { vocabulary_.size = vocab; }
  int64_t samples(Split) const override { return int64_t{1} << 40; }
  void read(Split, int64_t first, int64_t count, Tensor inputs, Tensor targets) const override {
    const int64_t in = inputs.elements() / count, out = targets.elements() / count;
    for (int64_t s = 0; s < count; ++s) {
      std::mt19937_64 random(static_cast<uint64_t>(first + s) * 7919 + 1);
      std::uniform_real_distribution<double> unit(0, 1);
      const auto id = [&] {
        return static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary_.size));
      };
      for (int64_t i = 0; i < in; ++i) {
        if (inputs.dtype == DType::i32)
          inputs.as<int32_t>()[s * in + i] = id();
        else
          inputs.as<float>()[s * in + i] = static_cast<float>(2 * unit(random) - 1);
      }
      for (int64_t i = 0; i < out; ++i)
        targets.as<int32_t>()[s * out + i] = unit(random) < ignored_ ? -1 : id();
    }
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  double ignored_;
};

class TestRank {
 public:
  // `backend_in`: of the CPU.
  TestRank(Job job_in, const Dataset& data_in, int threads = 1,
           Backend backend_in = make_backend(implementations(), "cpu"))
      : job(std::move(job_in)),
        data(data_in),
        backend(std::move(backend_in)),
        plans(make_rank_plan(job, {0, 1}, {backend.library, threads})),
        arenas(plans.memory, *backend.device, comm, threads),
        mesh(comm, comm, {}),
        model(plans.train, arenas, mesh, threads),
        executor(plans.train, arenas, backend, job, mesh, nullptr) {
    arenas.open_disk(plans.train, job);
    state.seed = job.seed;
    model.initialize(job.seed, implementations());
  }

  // Runs one step at the given learning rate. Returns the mean loss over targets. `seconds`: as in StepContext.
  double step(float lr, std::span<double> seconds = {}) {
    state.step = 1;
    state.lr = lr;
    StepContext context{.state = &state, .batch = {&data, Split::train, 0}, .seconds = seconds};
    executor.run(context);
    return state.loss_sum / static_cast<double>(state.targets);
  }

  Job job;
  const Dataset& data;
  SelfComm comm;
  Backend backend;
  RankPlan plans;
  Arenas arenas;
  MeshComm mesh;
  ModelState model;
  Executor executor;
  StepState state;
};

}  // namespace dstrain
