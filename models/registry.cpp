#include "models/registry.h"

#include "models/benchmark/benchmark.h"
#include "models/gptlite/gptlite.h"

namespace dstrain {

const ModelRegistry& model_registry() {
  static const ModelRegistry registry({
      &gptlite(),
      &benchmark(),
  });
  return registry;
}

}  // namespace dstrain
