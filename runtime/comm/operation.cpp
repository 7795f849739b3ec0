#include "runtime/comm/operation.h"

#include <fmt/core.h>

namespace dstrain {

std::string to_string(const OpKey& key) {
  if (key.kind == Collective::barrier) return fmt::format("barrier #{}", key.sequence);
  std::string text = fmt::format("{} #{} ({} bytes of {}", name_of(key.kind), key.sequence,
                                 key.elements * size_of(key.dtype), name_of(key.dtype));
  if (is_copy(key.kind)) text += fmt::format(" from rank {}", key.root);
  return text + ")";
}

}  // namespace dstrain
