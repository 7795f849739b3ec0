// The models of this program.
#pragma once

#include "runtime/config/keys/table/model_registry.h"

namespace dstrain {

const ModelRegistry& model_registry();

}  // namespace dstrain
