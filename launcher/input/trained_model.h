// TrainedModel: what --run or --model names: a job, the vocabulary of its data, and where the weights are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/data/vocabulary.h"
#include "runtime/engine/forward/forward_model.h"

namespace dstrain {

class ModelRegistry;

struct TrainedModel {
  Job job;  // of the run, with the device on which the model is to run
  Vocabulary vocabulary;
  WeightsSource place;
  std::string
      tokenizer;  // the directory of the tokenizer that its token ids are of; empty: there is none
};

// A run that has left weights.
struct WrittenRun {
  Job job;  // its model has the adapters that are beside the weights, but not those that the weights have already
  WeightsSource place;
  std::optional<LoraConfig> lora = {};  // of the run
};

// Reads what a run has left. `run`: its output directory, or one of its checkpoints, which `option` names in messages. Of a
// run that has not ended, the newest checkpoint is taken. Throws UserError if there are no weights.
WrittenRun read_run(const std::string& run, std::string_view option, const ModelRegistry& models);

// Reads the model of a run. `run`: its output directory, or one of its checkpoints. `device`: auto, cpu, cuda. Throws
// UserError if there is no model, the device is not there, or the model does not predict text.
TrainedModel read_trained_model(const std::string& run, DeviceChoice device,
                                const ModelRegistry& models);

// Reads the model of a folder of transformers' files (--model), whose data are token ids. `ignored`: keys of its config.json
// (--ignore). Throws UserError as read_trained_model.
TrainedModel read_model_directory(const std::string& directory, DeviceChoice device,
                                  const std::vector<std::string>& ignored,
                                  const ModelRegistry& models);

// Returns the directory of the tokenizer that a run's token ids are of; empty: it has none, or its text is no token ids.
// Throws UserError.
std::string tokenizer_of(const WrittenRun& run);

// Returns the chat template that a run's key names: the file that the run has written, because the named one may have
// changed since. Empty: the key names none.
std::string template_of_run(const TrainedModel& model);

// Checks what the files of the model's weights say of their tensors, and that this machine has the memory for them, before
// any of it is taken. Returns the check of what a whole forward pass takes. `advice`: what makes it take less, in messages.
// Throws UserError.
CheckDeviceBytes check_forward(const TrainedModel& model, const std::string& advice);

}  // namespace dstrain
