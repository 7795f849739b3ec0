#include "models/registry.h"

#include "models/benchmark/benchmark.h"
#include "models/gpt2/gpt2.h"
#include "models/gptlite/gptlite.h"

namespace dstrain {

const ModelRegistry& model_registry() {
  static const ModelRegistry registry({
      &gptlite(),
      &benchmark(),
      &gpt2(),
  });
  return registry;
}

}  // namespace dstrain
