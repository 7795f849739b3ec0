// Emitting the forward pass of a model.
#pragma once

#include "runtime/config/family/model_config.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {

// Emits the forward pass of `model` for one micro-batch into the builder's program. Throws InternalError if the program's
// inputs are not those that the model's family has.
void build_model(Builder& builder, const ModelConfig& model);

}  // namespace dstrain
