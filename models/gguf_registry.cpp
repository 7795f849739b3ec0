#include "models/gguf_registry.h"

#include <array>

#include "models/gemma/gemma.h"
#include "models/gemma2/gemma2.h"
#include "models/gemma3_text/gemma3_text.h"
#include "models/gpt2/gpt2.h"
#include "models/gpt_neox/gpt_neox.h"
#include "models/llama/llama.h"
#include "models/mistral/mistral.h"
#include "models/qwen2/qwen2.h"
#include "models/qwen3/qwen3.h"

namespace dstrain {
namespace {

struct Known {
  const ModelFamily& (*family)();
  models::GgufDescription (*describe)(const ModelConfig&);
};

constexpr std::array<Known, 9> kKnown{{{gpt2, gguf_of_gpt2},
                                       {llama, gguf_of_llama},
                                       {mistral, gguf_of_mistral},
                                       {qwen2, gguf_of_qwen2},
                                       {qwen3, gguf_of_qwen3},
                                       {gemma, gguf_of_gemma},
                                       {gemma2, gguf_of_gemma2},
                                       {gemma3_text, gguf_of_gemma3_text},
                                       {gpt_neox, gguf_of_gpt_neox}}};

}  // namespace

std::optional<models::GgufDescription> gguf_of(const ModelConfig& model) {
  for (const Known& known : kKnown)
    if (&known.family() == &model.family()) return known.describe(model);
  return std::nullopt;
}

}  // namespace dstrain
