#include "runtime/engine/files/end_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "runtime/config/model/family.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/storage/atomic_file.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

constexpr std::string_view kWeight = ".weight";

// Returns the name of the weight that an adapter belongs to.
std::string weight_of(std::string_view adapter) {
  return fmt::format("{}{}", adapter.substr(0, adapter.size() - kLoraA.size()), kWeight);
}

}  // namespace

EndWeights::EndWeights(const Job& job, const StateRegister& weights, const WeightsFormat& format)
    : job_(job) {
  const std::string model = fmt::format("{}/{}", job.output, kWeightsName);
  const StateRegister in_files = mapped(weights, weight_map_of(job.model));
  if (!job.model.fine_tuning().lora) {
    model_.emplace(model, in_files, format);
    return;
  }
  const AdaptedWeights split = split_adapters(in_files);
  adapter_config_ = adapter_config_json(job, adapted_modules(weights));
  const std::string folder = adapter_output(job);
  make_directory(folder);
  adapters_.emplace(fmt::format("{}/{}", folder, kAdapterWeights), split.adapters,
                    WeightsFormat{.as_package = true, .shard_bytes = INT64_MAX});
  if (!job.adapters.merge) return;
  model_.emplace(model, split.base, format);
  for (const StateEntry& entry : split.adapters) {
    Adapter& adapter = kept_[weight_of(entry.name)];
    const bool is_a = entry.name.ends_with(kLoraA);
    (is_a ? adapter.a : adapter.b).resize(static_cast<size_t>(entry.global_shape.elements()));
    adapter.r = entry.global_shape[is_a ? 0 : 1];
    if (is_a) adapter.inputs = entry.global_shape[1];
  }
}

void EndWeights::write(const std::string& name, int64_t begin, const Tensor& values) {
  if (adapters_ && is_adapter(name)) {
    adapters_->write(name, begin, values);
    if (model_) keep(name, begin, values);
    return;
  }
  if (!model_) return;
  const auto adapter = kept_.find(name);
  if (adapter == kept_.end()) return model_->write(name, begin, values);
  std::vector<float> sum = merged(adapter->second, begin, values);
  model_->write(name, begin, {sum.data(), {values.elements()}, DType::f32});
}

void EndWeights::keep(const std::string& name, int64_t begin, const Tensor& values) {
  Adapter& adapter = kept_.at(weight_of(name));
  std::vector<float>& part = name.ends_with(kLoraA) ? adapter.a : adapter.b;
  std::copy_n(values.as<const float>(), values.elements(), part.begin() + begin);
}

std::vector<float> EndWeights::merged(const Adapter& adapter, int64_t begin,
                                      const Tensor& values) const {
  const auto scale = static_cast<float>(job_.model.fine_tuning().lora->scale());
  const auto n = values.elements();
  std::vector<float> sum(values.as<const float>(), values.as<const float>() + n);
  for (int64_t at = begin; at < begin + n;) {
    const int64_t row = at / adapter.inputs, first = at % adapter.inputs;
    const int64_t columns = std::min(adapter.inputs - first, begin + n - at);
    float* const to = sum.data() + (at - begin);
    for (int64_t k = 0; k < adapter.r; ++k) {
      const float factor = scale * adapter.b[static_cast<size_t>(row * adapter.r + k)];
      const float* const a = adapter.a.data() + k * adapter.inputs + first;
      for (int64_t c = 0; c < columns; ++c) to[c] += factor * a[c];
    }
    at += columns;
  }
  return sum;
}

void EndWeights::finish() {
  // What an earlier run has left in the folder would be taken for weights of this one, or be added to them.
  const std::string folder = adapter_output(job_);
  remove_adapters(job_.output, adapters_ ? folder : "");
  if (model_)
    model_->finish();
  else
    remove_weights(job_.output);
  if (!adapters_) return;
  adapters_->finish();
  write_file(fmt::format("{}/{}", folder, kAdapterConfig), adapter_config_);
}

void remove_earlier_weights(const Job& job) {
  namespace fs = std::filesystem;
  const auto same = [](const fs::path& a, const fs::path& b) {
    std::error_code error;
    return fs::equivalent(a, b, error) && !error;
  };
  std::error_code none;
  const fs::path weights = fs::canonical(job.init_weights, none).parent_path();
  const fs::path named = fs::absolute(job.init_weights, none).parent_path();
  if (!same(weights, job.output) && !same(named, job.output)) remove_weights(job.output);
  const fs::path adapters = job.adapters.init.empty() ? "" : adapter_folder(job.adapters.init);
  std::string kept;
  for (const std::string& folder : {job.output, fmt::format("{}/{}", job.output, kAdapterFolder)})
    if (same(adapters, folder)) kept = folder;
  remove_adapters(job.output, kept);
}

}  // namespace dstrain
