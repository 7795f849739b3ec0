#include "launcher/export/run_weights.h"

#include <algorithm>

#include "runtime/config/family/family.h"
#include "runtime/core/blocks/weight_blocks.h"
#include "runtime/core/error.h"
#include "runtime/storage/weights/copy_weights.h"

namespace dstrain {

RunWeights::RunWeights(const ExportPlan& plan) : plan_(plan) {
  if (plan.weights_file.empty())
    checkpoint_.emplace(plan.run.place.checkpoint, plan.own);
  else
    files_.emplace(plan.weights_file, plan.own, plan.foreign);
  if (!plan.merged.empty()) take_adapters();
}

void RunWeights::read(size_t weight, int64_t begin, int64_t count, float* to) {
  const std::string& name = plan_.own[weight].name;
  if (const auto whole = whole_.find(name); whole != whole_.end())
    return read_adapters(whole->second, begin, count, to);
  read_as_left(weight, begin, count, to);
  if (!sums_) return;
  if (plan_.packed.contains(name)) round_to_blocks(count, to);
  sums_->add(name, begin, {to, static_cast<size_t>(count)});
}

void RunWeights::read_as_left(size_t weight, int64_t begin, int64_t count, float* to) {
  if (files_)
    files_->read(weight, begin, count, to, buffers_);
  else
    checkpoint_->read(weight, begin, count, to);
}

void RunWeights::take_adapters() {
  const StateRegister& adapters = plan_.merged;
  sums_.emplace(adapters, plan_.lora.scale());
  if (plan_.adapters_file.empty())
    adapter_checkpoint_.emplace(plan_.run.place.checkpoint, adapters);
  else
    adapter_files_.emplace(plan_.adapters_file, adapters, plan_.adapters_foreign);
  std::vector<float> values;
  for (size_t i = 0; i < adapters.size(); ++i) {
    if (!is_adapter(adapters[i].name)) {
      whole_.emplace(adapters[i].name, i);
      continue;
    }
    const int64_t count = adapters[i].global_shape.elements();
    values.resize(static_cast<size_t>(count));
    read_adapters(i, 0, count, values.data());
    sums_->keep(adapters[i].name, 0, {values.data(), {count}, DType::f32});
  }
}

void RunWeights::read_adapters(size_t weight, int64_t begin, int64_t count, float* to) {
  if (adapter_files_)
    adapter_files_->read(weight, begin, count, to, buffers_);
  else
    adapter_checkpoint_->read(weight, begin, count, to);
}

void RunWeights::round_to_blocks(int64_t count, float* values) {
  static_assert(kCopiedAtOnce % kWeightGroup == 0, "pieces of a weight begin with a whole block");
  const BlockFormat format = plan_.lora.base;
  packed_.resize(static_cast<size_t>(packed_bytes(format, count)));
  if (!pack_groups(format, values, count, packed_.data()))
    fail_user("{}: the weights that the adapters belong to have a value that is no number",
              plan_.weights_file);
  unpack_groups(format, packed_.data(), count, values);
}

}  // namespace dstrain
