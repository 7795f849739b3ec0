// The sizes of a model, from the program that its family builds.
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

// Returns the measures of a model of any family. Layers after the third are taken to be like it.
ModelMeasures measure_model(const ModelConfig& model);

// Returns the measures of a model whose layers are of different sizes: all of it is built.
ModelMeasures measure_all_layers(const ModelConfig& model);

}  // namespace dstrain
