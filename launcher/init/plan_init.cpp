#include "launcher/init/plan_init.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "launcher/init/config_lines.h"
#include "launcher/init/fitting.h"
#include "launcher/init/model_size.h"
#include "launcher/input/defaults.h"
#include "launcher/placement/machine.h"
#include "runtime/config/json/tree.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/shell_quote.h"
#include "runtime/config/text.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/devices/cuda_facts.h"
#include "runtime/core/error.h"
#include "runtime/core/isa/isa.h"
#include "runtime/core/text.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"

namespace dstrain {
namespace {

constexpr int64_t kUsualSteps = 1000;
constexpr int64_t kUsualBatch = 64;
constexpr int64_t kUsualSamples = 8;  // of a rank in a step, where 64 do not divide among the ranks
constexpr int64_t kValidations = 10;  // in a run

// Learning rates to begin with: of fresh weights, and a twentieth of it for weights that were trained before.
struct UsualRate {
  std::string_view optimizer;
  double rate;
};
constexpr std::array<UsualRate, 3> kRates{{{"sgd", 0.1}, {"lion", 1e-4}, {"muon", 0.02}}};
constexpr double kUsualRate = 1e-3, kTunedPart = 0.05;

std::string json_string(std::string_view text) {
  return json_text(text);
}
std::string number(int64_t value) {
  return fmt::format("{}", value);
}

// The configuration while it is made.
class Making {
 public:
  Making(const InitArguments& arguments, const InitMachine& machine)
      : a_(arguments), machine_(machine) {
    const int64_t here = std::max<int64_t>(1, machine.gpus);
    memory_.ranks = static_cast<int>(a_.ranks.value_or(here));
    ranks_ = a_.nodes * memory_.ranks;
    memory_.device = a_.device_memory.value_or(a_.host_memory ? 0 : machine.gpu_memory);
    memory_.host = a_.host_memory.value_or(machine.memory);
    steps_ = a_.steps.value_or(kUsualSteps);
    batch_ = a_.batch.value_or(kUsualBatch % ranks_ == 0 ? kUsualBatch : kUsualSamples * ranks_);
    if (batch_ % ranks_ != 0)
      fail_user("--batch {}: expected a multiple of the {} that share it", batch_,
                counted(ranks_, "rank"));
    request_.models = a_.models;
    request_.count_ids = ids_of_tokenizer;
    request_.ranks = ranks_;
    request_.data = a_.data;
    request_.model = a_.model;
    for (const std::string& set : a_.sets) given_.push_back(line_of_set(set));
  }

  NewConfig make() {
    const std::vector<ConfigLine> sizes = sizes_of_model();
    const std::vector<ConfigLine> training = training_lines();
    for (const auto& lines : {sizes, training, given_})
      for (std::string& set : as_sets(lines)) request_.sets.push_back(std::move(set));
    const Fitting fitting = settings_that_fit(request_, batch_, memory_, a_.zero_stage);

    std::vector<ConfigLine> lines = batch_lines(fitting.micro_batch);
    for (const auto& more : {training, fitting.lines, model_lines(sizes), data_lines(), given_})
      lines.insert(lines.end(), more.begin(), more.end());

    NewConfig made;
    made.assumption = fitting.assumption;
    made.train = {"dstrain", "--config", a_.output};
    if (a_.nodes > 1) made.train.insert(made.train.end(), {"--hostfile", "hosts"});
    if (ranks_ > a_.nodes)
      made.train.insert(made.train.end(), {"--num_gpus", number(memory_.ranks)});
    made.text = config_text(
        {"Written by: " + shell_command(a_.command), "Trains with: " + shell_command(made.train)},
        lines);
    made.summary = fmt::format(
        "{}: {}, {}, ZeRO stage {}, {}; batch {} = micro-batch {} x accumulation {} x {}; a rank "
        "reserves {}",
        a_.output, fitting.model, precision(), fitting.lines.front().value, counted(ranks_, "rank"),
        batch_, fitting.micro_batch, batch_ / ranks_ / fitting.micro_batch, counted(ranks_, "rank"),
        bytes_text(static_cast<double>(fitting.bytes)));
    return made;
  }

 private:
  bool has_weights() const { return a_.models->find(a_.model) == nullptr; }

  std::string precision() const {
    if (!a_.precision.empty()) return a_.precision;
    return memory_.device > 0 || machine_.multiplies_bf16 ? "bf16" : "fp32";
  }

  // Returns the keys of a model of the size that is asked for; none without.
  std::vector<ConfigLine> sizes_of_model() const {
    if (!a_.parameters) return {};
    if (has_weights())
      fail_user("--size: the model in {} has the size of its weights: leave it out", a_.model);
    ConfigRequest request = request_;
    request.assume_vocabulary = true;
    request.ranks = 1;
    LoadedConfig loaded = load_config(request);
    settle_planned_vocabulary(loaded.job);
    return lines_of_size(loaded.job.model, *a_.parameters);
  }

  std::vector<ConfigLine> model_lines(const std::vector<ConfigLine>& sizes) const {
    if (has_weights())
      return {
          {"dstrain.model", json_string(a_.model), "The folder of the model that is fine-tuned."}};
    std::vector<ConfigLine> lines{
        {"dstrain.model.type", json_string(a_.model),
         "A model with fresh weights; `dstrain models` lists its further keys."}};
    lines.insert(lines.end(), sizes.begin(), sizes.end());
    return lines;
  }

  std::vector<ConfigLine> batch_lines(int64_t micro_batch) const {
    return {{"train_batch_size", number(batch_),
             fmt::format("Samples of a step, of {} together: micro-batch x accumulation x ranks.",
                         counted(ranks_, "rank"))},
            {"train_micro_batch_size_per_gpu", number(micro_batch)}};
  }

  std::vector<ConfigLine> data_lines() const {
    return {{.key = "dstrain.data.path", .value = json_string(a_.data)}};
  }

  double learning_rate() const {
    if (a_.learning_rate) return *a_.learning_rate;
    const std::string name = lower_case(a_.optimizer);
    const auto* const known = std::ranges::find(kRates, name, &UsualRate::optimizer);
    return (known == kRates.end() ? kUsualRate : known->rate) * (has_weights() ? kTunedPart : 1);
  }

  // Returns what does not depend on the memory.
  std::vector<ConfigLine> training_lines() const {
    const std::string rate = json_text(learning_rate());
    const int64_t part = std::max<int64_t>(1, steps_ / kValidations);
    std::vector<ConfigLine> lines{
        {"optimizer.type", json_string(a_.optimizer)},
        {"optimizer.params.lr", rate},
        {"scheduler.type", "\"WarmupCosineLR\"", "The learning rate rises, then falls to a tenth."},
        {"scheduler.params.total_num_steps", number(steps_)},
        {"scheduler.params.warmup_num_steps", number(std::max<int64_t>(2, steps_ / 20))},
        {"scheduler.params.cos_min_ratio", "0.1"}};
    if (precision() != "fp32")
      lines.push_back({precision() + ".enabled", "true",
                       "Weights and activations of 16 bits, masters and moments of 32."});
    lines.push_back({"gradient_clipping", "1.0"});
    lines.push_back({"dstrain.steps", number(steps_)});
    lines.push_back({"dstrain.eval_interval", number(part), "Steps between two validations."});
    lines.push_back({"dstrain.save_interval", number(part), "Steps between two checkpoints."});
    return lines;
  }

  const InitArguments& a_;
  const InitMachine& machine_;
  FittedMemory memory_;
  int64_t ranks_ = 1, steps_ = 0, batch_ = 0;
  ConfigRequest request_;
  std::vector<ConfigLine> given_;  // by --set
};

}  // namespace

InitMachine look_at_init_machine() {
  InitMachine machine{.memory = available_memory().bytes,
                      .multiplies_bf16 = max_isa() >= Isa::avx512_bf16};
  if (cuda_device_count() == 0) return machine;
  for (const GpuFacts& gpu : cuda_facts().gpus) {
    machine.gpu_memory =
        machine.gpus == 0 ? gpu.memory.free : std::min(machine.gpu_memory, gpu.memory.free);
    ++machine.gpus;
  }
  return machine;
}

std::string command_text(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(shell_quoted(word));
  return fmt::format("{}", fmt::join(quoted, " "));
}

NewConfig plan_init(const InitArguments& arguments, const InitMachine& machine) {
  return Making(arguments, machine).make();
}

}  // namespace dstrain
