// The benchmark model: n_layer linear layers with ReLU after each, the last one included, and a cross-entropy loss. Its
// samples come from a counter-based generator (runtime/data/generated_dataset.h).
#pragma once

#include "runtime/config/family/family.h"

namespace dstrain {

const ModelFamily& benchmark();

}  // namespace dstrain
