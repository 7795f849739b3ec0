// Models state their forward pass with the builder and nothing else: no backward, no memory, no
// ranks. Names of parameters are the contract's (docs), so that weight files are the same for
// everybody.
#pragma once

#include "runtime/config/job.h"
#include "runtime/ir/builder.h"

namespace dstrain {

// Emits the forward pass of `config` for one micro-batch into the builder's program.
// config.vocab_size must be known for gptlite. Sequence length: config.block_size.
void build_model(Builder& builder, const ModelConfig& config);

void build_gptlite(Builder& builder, const ModelConfig& config);
void build_benchmark(Builder& builder, const ModelConfig& config);

}  // namespace dstrain
