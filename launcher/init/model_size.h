// Sizes of models: the model of a family that has about as many parameters as somebody asks for. Pure.
#pragma once

#include <vector>

#include "launcher/init/config_lines.h"
#include "runtime/config/family/model_config.h"

namespace dstrain {

// Returns the keys that make of `base`, whose vocabulary counts where it is known, a model with about `parameters`
// parameters: heads of 64 channels, and as many layers as heads. Throws UserError if the family has no such sizes.
std::vector<ConfigLine> lines_of_size(const ModelConfig& base, double parameters);

}  // namespace dstrain
