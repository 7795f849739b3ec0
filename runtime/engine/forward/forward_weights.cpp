#include "runtime/engine/forward/forward_weights.h"

#include <fmt/core.h>

#include <set>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/engine/files/base_file.h"
#include "runtime/engine/files/unread_head.h"
#include "runtime/engine/run/model_state.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

// The files that have the weights of a forward pass.
struct ForwardFiles {
  std::string base,   // a file or an index; empty: they are made afresh
      adapters = {};  // empty: there are none
};

// Returns the files of the weights at a place without a checkpoint. A run with adapters has left them alone: the model is
// where the run took it from.
ForwardFiles files_at(const Job& job, const WeightsSource& place, bool has_adapters) {
  if (!has_adapters)
    return {directory_weights(place.run_dir, fmt::format("{} {}", place.option, place.run_dir))};
  return {base_file(job, fmt::format("{} {}", place.option, place.run_dir)),
          fmt::format("{}/{}", place.run_dir, kAdapterWeights)};
}

void load_files(const ModelState& state, const Job& job, const WeightsSource& place,
                const Implementations& implementations) {
  const AdaptedWeights weights =
      split_adapters(mapped(state.weights(), weight_map_of(job.model)), job.model.fine_tuning());
  const ForwardFiles files = files_at(job, place, !weights.adapters.empty());
  if (files.base.empty())
    state.initialize(job.seed, implementations);
  else
    load_weights(files.base, weights.base, names_in_base(job, files.base));
  // Modules that were trained as a whole are in both.
  if (!files.adapters.empty())
    load_weights(files.adapters, weights.adapters, adapter_names_of(job.model));
}

}  // namespace

Job in_f32(const Job& trained) {
  Job job = trained;
  job.dtype = DType::f32;
  return job;
}

void check_forward_weights(const Job& job, const WeightsSource& place,
                           const StateRegister& weights) {
  if (!place.checkpoint.empty()) return;
  const AdaptedWeights split = split_adapters(weights, job.model.fine_tuning());
  const ForwardFiles files = files_at(job, place, !split.adapters.empty());
  if (!files.adapters.empty()) check_adapter_weights(files.adapters, job, split.adapters);
  if (files.base.empty()) return;
  check_weights(files.base, split.base, names_in_base(job, files.base));
  check_unread_head(files.base, job.model);
}

DType dtype_of_files(const Job& job, const WeightsSource& place) {
  if (!place.checkpoint.empty()) return DType::f32;
  const ForwardFiles files = files_at(job, place, job.model.fine_tuning().lora.has_value());
  if (files.base.empty()) return DType::f32;
  std::set<std::string_view> types;
  WeightFiles(files.base, names_in_base(job, files.base))
      .for_each([&types](const SafetensorsTensor& tensor, const std::string&) {
        if (tensor.shape.size() >= 2) types.insert(tensor.type.name);
      });
  if (types == std::set<std::string_view>{"BF16"}) return DType::bf16;
  return types == std::set<std::string_view>{"F16"} ? DType::f16 : DType::f32;
}

void load_forward_weights(const Job& job, const WeightsSource& place,
                          const Implementations& implementations, const Plan& plan, Arenas& arenas,
                          MeshComm& mesh, int threads) {
  arenas.begin_populating();
  const ModelState state(plan, arenas, mesh, threads);
  if (place.checkpoint.empty()) {
    load_files(state, job, place, implementations);
  } else {
    StateRegister weights = state.weights_in_checkpoints();
    load_checkpoint_weights(place.checkpoint, weights);
  }
  arenas.wait_until_present();
}

}  // namespace dstrain
