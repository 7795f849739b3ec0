// A model that the program does not know, for tests: its .cpp is all of it (docs/models.md).
#pragma once

#include "runtime/config/keys/table/model_registry.h"

namespace dstrain {

// A bigram with notes beside the tokens: its inputs are token ids, float features and labels.
const ModelFamily& bigram_with_notes();

// Returns the program's default model, this one, and the model of tests/support/mixed_model.h.
const ModelRegistry& own_models();

}  // namespace dstrain
