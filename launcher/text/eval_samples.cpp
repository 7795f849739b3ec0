#include "launcher/text/eval_samples.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "launcher/implementations.h"
#include "launcher/input/run_input.h"
#include "launcher/process/failure.h"
#include "runtime/config/family/family.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/core_share.h"
#include "runtime/data/open_dataset.h"
#include "runtime/engine/forward/evaluate_samples.h"

namespace dstrain {
namespace {

using nlohmann::ordered_json;

void refuse_text_options(const EvalArguments& arguments, const ModelFamily& family) {
  const auto refuse = [&family](bool given, const char* option) {
    if (given)
      fail_user("{}: it is of texts, and the {} reads arrays: leave it out", option, family.title);
  };
  refuse(!arguments.logits.empty(), "--logits");
  refuse(arguments.seq_len.has_value(), "--seq_len");
  refuse(!arguments.chat_template.empty(), "--chat_template");
}

ordered_json finite_number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json json_of_samples(const SampleEvaluation& e) {
  ordered_json json = {{"samples", e.samples}, {"loss", finite_number(e.loss)}};
  for (const auto& [name, value] : e.metrics) json[name] = finite_number(value);
  return json;
}

std::string text_of_samples(const SampleEvaluation& e) {
  std::string text = fmt::format("{:<14}{}\n{:<14}{:.6f}\n", "samples", e.samples, "loss", e.loss);
  for (const auto& [name, value] : e.metrics) text += fmt::format("{:<14}{:.6f}\n", name, value);
  return text;
}

}  // namespace

int eval_samples(const EvalArguments& arguments, WrittenRun run) {
  TrainedModel model{
      .job = std::move(run.job), .vocabulary = {}, .place = std::move(run.place), .tokenizer = {}};
  Job& job = model.job;
  const ModelFamily& family = job.model.family();
  refuse_text_options(arguments, family);
  if (family.any_batch() != 1)
    fail_user(
        "{} holds an {} of {} samples at a time, and eval takes one: export the model with "
        "dynamic_shapes, so that the batch is free",
        arguments.run_dir, family.title, family.any_batch());
  job.device = device_named(arguments.device);
  settle_device(job);
  const CheckDeviceBytes check_bytes = check_forward(model, "use a smaller model");
  job.data.paths = {arguments.data};
  job.data.val_path = arguments.data;
  job.data.val_fraction = 0;
  const std::unique_ptr<Dataset> data = open_dataset(job);
  ForwardModel forward(job, model.place, implementations(), 0, ForwardModel::Ends::with_losses,
                       take_core_share(0, 1, threads_asked_for()), check_bytes);
  const SampleEvaluation result = evaluate_samples(forward, *data);
  print_result(arguments.json ? json_of_samples(result).dump() + "\n" : text_of_samples(result));
  return 0;
}

}  // namespace dstrain
