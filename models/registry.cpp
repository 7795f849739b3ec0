#include "models/registry.h"

#include "models/benchmark/benchmark.h"
#include "models/gpt2/gpt2.h"
#include "models/gptlite/gptlite.h"
#include "models/llama/llama.h"
#include "models/mistral/mistral.h"
#include "models/qwen2/qwen2.h"
#include "models/qwen3/qwen3.h"

namespace dstrain {

const ModelRegistry& model_registry() {
  static const ModelRegistry registry({
      &gptlite(),
      &benchmark(),
      &gpt2(),
      &llama(),
      &mistral(),
      &qwen2(),
      &qwen3(),
  });
  return registry;
}

}  // namespace dstrain
