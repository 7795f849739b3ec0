// The part of RunOutput that writes weights, and their averages where a run has them.
#include <fmt/core.h>

#include <exception>
#include <filesystem>
#include <optional>
#include <string_view>

#include "runtime/config/family/family.h"
#include "runtime/config/read/model_source.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/engine/files/end_weights.h"
#include "runtime/engine/files/model_directory.h"
#include "runtime/engine/run/run_output.h"

namespace dstrain {

// Makes the folder of the averages, with what is needed to read them as a model.
void RunOutput::begin_averages() const {
  make_directory(averages_.output);
  if (!ctx_.config_json.empty())
    begin_model_directory(averages_, ctx_.config_json,
                          resumed_here() ? OtherFiles::stay : OtherFiles::removed);
  if (writes_vocabulary())
    write_file(averages_.output + "/vocab.json", vocabulary_json(dataset_.vocabulary()));
}

void RunOutput::remove_earlier_averages() const {
  namespace fs = std::filesystem;
  std::error_code none;
  if (!fs::exists(averages_.output, none)) return;
  remove_earlier_weights(averages_);
  if (has_averages() || fs::equivalent(job_.model_directory, averages_.output, none)) return;
  copy_model_files("", averages_.output, OtherFiles::removed);
  for (const std::string_view name : {kConfigJson, std::string_view("vocab.json")})
    fs::remove(fmt::format("{}/{}", averages_.output, name), none);
  fs::remove(averages_.output, none);  // what is not of a run stays, and its folder
}

int64_t RunOutput::weight_bytes() const {
  int64_t bytes = 0;
  for (const StateEntry& w : model_.weights())
    if (!EndWeights::adapters_alone(job_) || job_.model.fine_tuning().with_adapters(w.name))
      bytes += w.global_shape.elements() * size_of(DType::f32);
  return has_averages() ? 2 * bytes : bytes;
}

WeightsFormat RunOutput::weights_format() const {
  WeightsFormat format{.as_package = !ctx_.config_json.empty(),
                       .shard_bytes = job_.save.shard_bytes};
  if (const auto& kept = job_.model.family().kept_tensors) format.kept = kept(job_.model);
  format.dtype = [this](const std::string& tensor) {
    return saved_dtype(tensor, saved_dtypes_, job_.save);
  };
  return format;
}

std::optional<AgreedFailure> RunOutput::write_weights(const Job& job, int64_t applied_steps) {
  if (ctx_.slot) ctx_.slot->set_state(RankState::saving);
  std::optional<EndWeights> files;
  // After an error the other ranks send what is left, so that all take part in what follows.
  std::exception_ptr error;
  const auto attempt = [&](const auto& action) {
    if (!root() || error) return;
    try {
      action();
    } catch (...) {
      error = std::current_exception();
    }
  };
  if (root()) directory_->require();
  attempt([&] { files.emplace(job, model_.weights(), weights_format()); });
  const auto write = [&](const Parameter& p, int64_t begin, const Tensor& values) {
    attempt([&] { files->write(p.name, begin, values); });
  };
  const auto collect = [&](const WantedWeight& wanted) {
    model_.collect_weights(
        mesh_, write, {.average = groups_differ(job_, applied_steps).weights, .wanted = wanted});
  };
  const auto with_adapters = [&job](std::string_view name) {
    return job.model.fine_tuning().with_adapters(name);
  };
  // An adapter comes before the weight that it is added to, whichever of the two are trained.
  if (job_.model.fine_tuning().lora) collect(with_adapters);
  if (!EndWeights::adapters_alone(job_)) collect(std::not_fn(with_adapters));
  model_.collect_buffers(mesh_, [&](const RegisteredBuffer& b, const Tensor& values) {
    attempt([&] { files->write(b.name, 0, values); });
  });
  attempt([&] { files->finish(); });
  return failure_on_any_rank(*ctx_.comm, "write the weights", [&] {
    if (error) std::rethrow_exception(error);
  });
}

std::optional<AgreedFailure> RunOutput::write_averages(int64_t applied_steps) {
  if (!has_averages() || applied_steps == 0) return std::nullopt;  // there is none before an update
  model_.exchange_averages();
  std::optional<AgreedFailure> lost = write_weights(averages_, applied_steps);
  model_.exchange_averages();
  return lost;
}

}  // namespace dstrain
