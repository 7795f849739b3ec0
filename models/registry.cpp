#include "models/registry.h"

#include "models/benchmark/benchmark.h"
#include "models/deepseek_v3/deepseek_v3.h"
#include "models/exported/family/exported_family.h"
#include "models/gemma/gemma.h"
#include "models/gemma2/gemma2.h"
#include "models/gemma3_text/gemma3_text.h"
#include "models/gpt2/gpt2.h"
#include "models/gpt_neox/gpt_neox.h"
#include "models/gptlite/gptlite.h"
#include "models/llama/llama.h"
#include "models/mistral/mistral.h"
#include "models/mixtral/mixtral.h"
#include "models/olmoe/olmoe.h"
#include "models/qwen2/qwen2.h"
#include "models/qwen2_moe/qwen2_moe.h"
#include "models/qwen3/qwen3.h"
#include "models/qwen3_moe/qwen3_moe.h"
#include "models/resnet/resnet.h"

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
      &mixtral(),
      &qwen2_moe(),
      &qwen3_moe(),
      &olmoe(),
      &deepseek_v3(),
      &gemma(),
      &gemma2(),
      &gemma3_text(),
      &gpt_neox(),
      &resnet(),
      &exported_family(),
  });
  return registry;
}

}  // namespace dstrain
