// The models of this program.
#pragma once

#include "runtime/config/model/registry.h"

namespace dstrain {

const ModelRegistry& model_registry();

}  // namespace dstrain
