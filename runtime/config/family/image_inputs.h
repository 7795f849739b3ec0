// Which inputs of a model are images and labels.
#pragma once

#include <string>

#include "runtime/config/family/family.h"

namespace dstrain {

// The two inputs of a model that images give. Its images have `channels` x `height` x `width` values.
struct ImageInputs {
  const ModelInput* images = nullptr;
  const ModelInput* labels = nullptr;
  int64_t channels = 0, height = 0, width = 0;
  std::string problem;  // why images do not give the inputs; empty: they do, and all else is set
};

// Returns the inputs: one of fractions of (samples, 1 or 3 channels, height, width), one of integers of (samples), and no
// others.
ImageInputs image_inputs(const ModelConfig& model);

}  // namespace dstrain
