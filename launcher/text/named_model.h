// The trained model that a command line names (TrainedName).
#pragma once

#include <cstdint>
#include <optional>

#include "launcher/cli/arguments.h"
#include "launcher/input/trained_model.h"

namespace dstrain {

// Reads the model of --run or --model, and sets the tokens of a window where --seq_len says them. Throws UserError.
TrainedModel read_named_model(const TrainedName& name, std::optional<int64_t> seq_len,
                              const ModelRegistry& models);

}  // namespace dstrain
