// TrainedModel: what --run names: the job of a run, its vocabulary, and where its weights are.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/job.h"
#include "runtime/data/vocabulary.h"
#include "runtime/engine/forward/forward_model.h"

namespace dstrain {

class ModelRegistry;

struct TrainedModel {
  Job job;  // of the run, with the device on which the model is to run
  Vocabulary vocabulary;
  ModelPlace place;
  std::string
      tokenizer;  // the directory of the tokenizer that its token ids are of; empty: there is none
};

// Reads a run. `run`: its output directory, or one of its checkpoints. `device`: auto, cpu, cuda. Throws UserError if
// there is no model, the device is not there, or the model does not predict text.
TrainedModel read_trained_model(const std::string& run, const std::string& device,
                                const ModelRegistry& models);

}  // namespace dstrain
