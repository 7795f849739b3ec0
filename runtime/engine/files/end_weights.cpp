#include "runtime/engine/files/end_weights.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "runtime/config/family/family.h"
#include "runtime/config/family/hugging_face.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
EndWeights::EndWeights(const Job& job, const StateRegister& weights, const WeightsFormat& format)
    : job_(job) {
  const std::string model = fmt::format("{}/{}", job.output, kWeightsName);
  const StateRegister in_files = mapped(weights, weight_map_of(job.model));
  if (!job.model.fine_tuning().lora) {
    model_.emplace(model, in_files, format);
    return;
  }
  const AdaptedWeights split = split_adapters(in_files, job.model.fine_tuning());
  adapter_config_ = adapter_config_json(job, weights);
  const std::string folder = adapter_output(job);
  make_directory(folder);
  adapters_.emplace(fmt::format("{}/{}", folder, kAdapterWeights),
                    with_shared_head(split.adapters, job.model),
                    WeightsFormat{.as_package = true, .shard_bytes = INT64_MAX});
  if (!job.adapters.merge) return;
  model_.emplace(model, split.base, format);
  sums_.emplace(split.adapters, job.model.fine_tuning().lora->scale());
}

void EndWeights::write(const std::string& name, int64_t begin, const Tensor& values) {
  if (adapters_ && job_.model.fine_tuning().with_adapters(name)) {
    adapters_->write(name, begin, values);
    if (name == tied_table_of(job_.model)) adapters_->write(kHeadTensor, begin, values);
  }
  if (!model_) return;
  if (sums_ && is_adapter(name)) return sums_->keep(name, begin, values);
  if (!sums_ || !sums_->adapts(name)) return model_->write(name, begin, values);
  std::vector<float> sum(values.as<const float>(), values.as<const float>() + values.elements());
  sums_->add(name, begin, sum);
  model_->write(name, begin, {sum.data(), {values.elements()}, DType::f32});
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
