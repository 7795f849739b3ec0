#include "launcher/init/fitting.h"

#include <fmt/format.h>

#include <algorithm>

#include "launcher/implementations.h"
#include "launcher/input/defaults.h"
#include "launcher/input/fit_to_memory.h"
#include "launcher/input/run_input.h"
#include "runtime/config/family/family.h"
#include "runtime/config/family/measures.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/text.h"
#include "runtime/plan/cost/state_bytes.h"
#include "runtime/plan/settings/fit.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestMicroBatch = 8;  // Hugging Face's default
constexpr int kLastStage = 3;

// Settings beside the ZeRO stage that make a rank hold less.
struct Saving {
  std::vector<ConfigLine> lines;
  bool needs_gpu = false;  // where ranks compute on CPUs, what is offloaded takes the same memory
  int lowest_stage = 0;
};

std::vector<Saving> savings() {
  const ConfigLine recompute{"dstrain.recompute", "1",
                             "Layers keep their inputs alone and compute the rest again."};
  const ConfigLine optimizer{"zero_optimization.offload_optimizer.device", "\"cpu\"",
                             "The optimizer's state is in the host's memory."};
  const ConfigLine parameters{"zero_optimization.offload_param.device", "\"cpu\"",
                              "So are parameters, until a layer needs them."};
  return {{{}},
          {{recompute}},
          {{optimizer, recompute}, true, 1},
          {{optimizer, parameters, recompute}, true, kLastStage}};
}

// Returns the micro-batches to try, the largest first.
std::vector<int64_t> micro_batches(int64_t each) {
  std::vector<int64_t> sizes;
  for (int64_t size = kLargestMicroBatch; size > 0; size /= 2)
    if (each % size == 0) sizes.push_back(size);
  return sizes;
}

// One set of settings, planned.
class Attempt {
 public:
  Attempt(ConfigRequest request, const FittedMemory& memory) : memory_(memory) {
    if (memory.device > 0) request.device_memory = memory.device;
    request.assume_vocabulary = true;
    loaded_ = load_config(request);
    settle_device(loaded_.job, RunsWhere::nowhere);
    assumed_ = settle_planned_vocabulary(loaded_.job);
  }

  bool fits() {
    const Job& job = loaded_.job;
    const RankMemory offered{memory_.host, memory_.ranks, RankProcesses::programs};
    if (memory_.device == 0) {
      bytes_ = static_cast<int64_t>(least_state_bytes(job).memory());
      if (!dstrain::fits(job, offered)) return false;
      bytes_ = planned_bytes(job, plan_inputs(job, memory_.ranks));
      return true;
    }
    const SpaceBytes least = least_state_bytes(job);
    bytes_ = static_cast<int64_t>(least.device);
    if (least.memory() > static_cast<double>(memory_.device) + static_cast<double>(memory_.host))
      return false;
    const PlannedMemory planned = planned_memory(job, plan_inputs(job, memory_.ranks));
    bytes_ = planned.device;
    return planned.device <= memory_.device &&
           (planned.host + kProcessOverheadBytes) * memory_.ranks <= memory_.host;
  }

  int highest() const { return highest_stage(loaded_.job); }
  int64_t bytes() const { return bytes_; }
  std::string assumption() const { return assumed_ ? assumed_->line() : ""; }
  std::string model() const {
    const ModelConfig& model = loaded_.job.model;
    return fmt::format("{} of {} parameters", model.family().title,
                       short_count(model.measures().parameters));
  }

 private:
  static std::string short_count(double count) {
    return count >= 1e9   ? fmt::format("{:.2f}B", count / 1e9)
           : count >= 1e7 ? fmt::format("{:.0f}M", count / 1e6)
                          : fmt::format("{:.2f}M", count / 1e6);
  }

  FittedMemory memory_;
  LoadedConfig loaded_;
  std::optional<AssumedVocabulary> assumed_;
  int64_t bytes_ = 0;
};

std::string stage_comment(int stage, std::optional<int64_t> asked) {
  constexpr const char* divided[] = {
      "every rank has all of the model's state", "ranks divide the optimizer's state",
      "ranks divide the optimizer's state and the gradients",
      "ranks divide the optimizer's state, gradients and parameters"};
  return fmt::format("Stage {}: {}{}.", stage, divided[stage],
                     asked ? "" : "; the lowest stage that fits");
}

[[noreturn]] void refuse_all(const std::string& model, const FittedMemory& memory, int64_t least) {
  fail_user(
      "{} does not fit: with all that saves memory a rank reserves at least {}, and there is {}: "
      "give "
      "more ranks (--num_gpus, --num_nodes), a smaller model (--size), or another memory "
      "({})",
      model, bytes_text(static_cast<double>(least)),
      memory.device > 0
          ? fmt::format("{} on each GPU and {} for the {} of a host",
                        bytes_text(static_cast<double>(memory.device)),
                        bytes_text(static_cast<double>(memory.host)), counted(memory.ranks, "rank"))
          : fmt::format("{} for the {} of a host", bytes_text(static_cast<double>(memory.host)),
                        counted(memory.ranks, "rank")),
      memory.device > 0 ? "--device_memory, --host_memory" : "--host_memory");
}

}  // namespace

Fitting settings_that_fit(const ConfigRequest& request, int64_t batch, const FittedMemory& memory,
                          std::optional<int64_t> stage) {
  const int64_t ranks = request.ranks.value_or(1);
  std::string model;
  int64_t least = 0;
  for (const Saving& saving : savings()) {
    if (saving.needs_gpu && memory.device == 0) continue;
    const int first = std::max(static_cast<int>(stage.value_or(0)), saving.lowest_stage);
    // Alone, a rank has nobody to share its state with.
    const int last = stage        ? static_cast<int>(*stage)
                     : ranks == 1 ? std::max(saving.lowest_stage, 0)
                                  : kLastStage;
    for (int s = first; s <= last; ++s)
      for (const int64_t micro : micro_batches(batch / ranks)) {
        Fitting found{
            .lines = {{"zero_optimization.stage", fmt::format("{}", s), stage_comment(s, stage)}},
            .micro_batch = micro};
        found.lines.insert(found.lines.end(), saving.lines.begin(), saving.lines.end());
        ConfigRequest tried = request;
        for (std::string& set : as_sets(found.lines)) tried.sets.push_back(std::move(set));
        tried.sets.push_back(fmt::format("train_micro_batch_size_per_gpu={}", micro));
        Attempt attempt(std::move(tried), memory);
        if (!stage && s > attempt.highest()) break;
        model = attempt.model();
        if (!attempt.fits()) {
          least = attempt.bytes();
          continue;
        }
        found.bytes = attempt.bytes();
        found.assumption = attempt.assumption();
        found.model = model;
        return found;
      }
  }
  refuse_all(model, memory, least);
}

}  // namespace dstrain
