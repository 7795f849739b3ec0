// OptimizerRuns: whole runs of GPT-lite with a sign optimizer, and with AdamW or Lamb beside them.
#pragma once

#include "tests/golden/run_program.h"

namespace dstrain::golden {

class OptimizerRuns {
 public:
  // `changes` are merged into the configuration, `phases` into the parameters of the sign optimizer.
  OptimizerRuns(nlohmann::json changes, nlohmann::json phases)
      : config_(golden_.config), phases_(std::move(phases)) {
    config_.erase("scheduler");
    config_.erase("train_micro_batch_size_per_gpu");
    config_["train_batch_size"] = 16;
    config_["gradient_accumulation_steps"] = 2;
    config_["zero_optimization"] = {{"stage", 0}};
    config_.merge_patch(changes);
  }

  // Runs the program on `ranks` ranks with an optimizer: AdamW, Lamb or the sign optimizer.
  Run run(const std::string& optimizer, int ranks, std::vector<std::string> arguments = {}) {
    nlohmann::json config = config_, params{{"lr", 1e-3}, {"weight_decay", 0.01}};
    if (optimizer == "AdamW" || optimizer == "Lamb")
      params["bias_correction"] = false;  // which sign optimizers have none of
    else
      params.update(phases_);
    config["optimizer"] = {{"type", optimizer}, {"params", params}};
    arguments.insert(arguments.end(), {"--num_gpus", std::to_string(ranks)});
    return train(golden_, config, scratch_, "run" + std::to_string(runs_++), arguments);
  }

 private:
  const Case golden_{"gptlite"};
  const ScratchFolder scratch_;
  nlohmann::json config_, phases_;
  int runs_ = 0;
};

}  // namespace dstrain::golden
