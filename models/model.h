// Models emit their forward pass through the Builder; backward pass, memory and ranks are the plan's work.
// Names of parameters are part of the file format of weights (docs/formats.md).
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/builder.h"

namespace dstrain {

// Emits the forward pass of `config` for one micro-batch into the builder's program. For gptlite,
// config.vocab_size must be known. Sequences have the length of the builder's options, or else
// config.block_size.
void build_model(Builder& builder, const ModelConfig& config);

void build_gptlite(Builder& builder, const ModelConfig& config);
void build_benchmark(Builder& builder, const ModelConfig& config);

}  // namespace dstrain
