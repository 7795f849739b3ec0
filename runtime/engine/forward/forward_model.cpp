#include "runtime/engine/forward/forward_model.h"

#include <fmt/core.h>

#include "runtime/comm/devices/device_comm.h"
#include "runtime/config/model/family.h"
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

Job in_f32(const Job& trained) {
  Job job = trained;
  job.dtype = DType::f32;  // the precision of the weight file
  return job;
}

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

const MemoryTable& checked(const MemoryTable& memory, const CheckDeviceBytes& check_bytes) {
  if (check_bytes) check_bytes(memory.total());
  return memory;
}

}  // namespace

void check_forward_weights(const Job& job, const WeightsSource& place,
                           const StateRegister& weights) {
  if (!place.checkpoint.empty()) return;
  const AdaptedWeights split = split_adapters(weights);
  const ForwardFiles files = files_at(job, place, !split.adapters.empty());
  if (!files.adapters.empty()) check_weights(files.adapters, split.adapters);
  if (files.base.empty()) return;
  check_weights(files.base, split.base, foreign_names_of(job.model));
  check_unread_head(files.base, job.model);
}

ForwardModel::ForwardModel(const Job& job, const WeightsSource& place,
                           const Implementations& implementations, int64_t seq_len, Ends ends,
                           int threads, const CheckDeviceBytes& check_bytes)
    : job_(in_f32(job)),
      backend_(make_backend(implementations, job_.device)),
      comm_(make_device_communicator(self_, *backend_.device)),
      plans_(make_forward_plan(job_, seq_len, ends == Ends::with_losses,
                               {backend_.library, threads, {}})),
      arenas_(checked(plans_.memory, check_bytes), *backend_.device, comm(), threads),
      mesh_(comm(), self_, {}),
      executor_(plans_.validate, arenas_, backend_, job_, mesh_, nullptr) {
  arenas_.begin_populating();
  const ModelState state(plans_.validate, arenas_, mesh_, threads);
  if (place.checkpoint.empty()) {
    load_files(state, place, implementations);
  } else {
    StateRegister weights = state.weights_in_checkpoints();
    load_checkpoint_weights(place.checkpoint, weights);
  }
  arenas_.wait_until_present();
}

void ForwardModel::load_files(const ModelState& state, const WeightsSource& place,
                              const Implementations& implementations) {
  const AdaptedWeights weights = split_adapters(mapped(state.weights(), weight_map_of(job_.model)));
  const ForwardFiles files = files_at(job_, place, !weights.adapters.empty());
  if (!files.adapters.empty()) load_weights(files.adapters, weights.adapters);
  if (files.base.empty()) return state.initialize(job_.seed, implementations, WeightSet::base);
  load_weights(files.base, weights.base, foreign_names_of(job_.model));
}

void ForwardModel::read_logits(int64_t row, std::span<float> to) const {
  const Tensor all = tensor(program().logits);
  const auto columns = static_cast<int64_t>(to.size());
  check(all.dtype == DType::f32 && columns <= all.shape[-1], "logits are {} {}, not {} f32",
        name_of(all.dtype), to_string(all.shape), columns);
  const Tensor values{
      all.as<std::byte>() + row * all.shape[-1] * size_of(all.dtype), {columns}, all.dtype};
  on_host(*backend_.device, values, HostAccess::read, [&](int64_t first, const Tensor& piece) {
    std::copy_n(piece.as<const float>(), piece.elements(), to.begin() + first);
  });
}

}  // namespace dstrain
