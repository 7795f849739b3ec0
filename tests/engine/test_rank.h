// TestRank: memory, kernels and an executor for one training plan, without files and without a launcher.
#pragma once

#include <random>

#include "launcher/implementations.h"
#include "runtime/comm/self_comm.h"
#include "runtime/engine/run/model_state.h"
#include "runtime/engine/step/executor.h"
#include "runtime/optim/loss_scaler.h"

namespace dstrain {

// A dataset of random samples: token ids, f32 features, labels and documents, of which a token in four begins one. Each sample depends only on its number, so that all
// ranks and runs read the same ones. `ignored`: the share of labels that do not count (-1).
class RandomDataset : public Dataset {
 public:
  RandomDataset(int64_t vocab, double ignored = 0) : ignored_(ignored) { vocabulary_.size = vocab; }
  int64_t samples(Split) const override { return int64_t{1} << 40; }
  void read(Split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    for (int64_t s = 0; s < count; ++s) {
      std::mt19937_64 random(static_cast<uint64_t>(first + s) * 7919 + 1);
      for (const InputTensor& input : inputs) {
        const int64_t elements = input.tensor.elements() / count;
        for (int64_t i = s * elements; i < (s + 1) * elements; ++i) {
          if (input.role == InputRole::features)
            input.tensor.as<float>()[i] = static_cast<float>(2 * unit(random) - 1);
          else if (input.role == InputRole::documents)
            input.tensor.as<int32_t>()[i] = i == s * elements || unit(random) < 0.25
                                                ? static_cast<int32_t>(i - s * elements)
                                                : input.tensor.as<int32_t>()[i - 1];
          else
            input.tensor.as<int32_t>()[i] =
                input.role == InputRole::labels && unit(random) < ignored_ ? -1 : id(random);
        }
      }
    }
  }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  static double unit(std::mt19937_64& random) {
    return std::uniform_real_distribution<double>(0, 1)(random);
  }
  int32_t id(std::mt19937_64& random) const {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary_.size));
  }

  Vocabulary vocabulary_;
  double ignored_;
};

class TestRank {
 public:
  // `backend_in`: of the CPU. `slot`: where the executor publishes what it does; may be null.
  TestRank(Job job_in, const Dataset& data_in, int threads = 1,
           Backend backend_in = make_backend(implementations(), DeviceChoice::cpu),
           RankSlot* slot = nullptr)
      : job(std::move(job_in)),
        data(data_in),
        backend(std::move(backend_in)),
        plans(make_rank_plan(job, {}, {backend.library, threads})),
        arenas(plans.memory, *backend.device, comm, threads),
        mesh(comm, comm, {}),
        model(plans.train, arenas, mesh, threads),
        executor(plans.train, arenas, backend, job, mesh, slot) {
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
