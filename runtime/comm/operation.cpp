#include "runtime/comm/operation.h"

#include <fmt/core.h>

namespace dstrain {

std::string_view name_of(Collective kind) {
  constexpr std::string_view names[] = {"all_reduce", "reduce_scatter", "all_gather",
                                        "all_to_all", "broadcast",      "message",
                                        "barrier",    "gather_values"};
  return names[static_cast<size_t>(kind)];
}

std::string to_string(const OpKey& key) {
  if (key.kind == Collective::barrier) return fmt::format("barrier #{}", key.sequence);
  std::string text = fmt::format("{} #{} ({} bytes of {}", name_of(key.kind), key.sequence,
                                 key.elements * size_of(key.dtype), name_of(key.dtype));
  if (is_copy(key.kind)) text += fmt::format(" from rank {}", key.root);
  return text + ")";
}

int64_t ring_bytes(Collective kind, int64_t whole_bytes, int ranks) {
  if (whole_bytes < 1024 || ranks < 2) return 0;
  switch (kind) {
    case Collective::all_reduce:
      return 2 * whole_bytes * (ranks - 1) / ranks;
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::all_to_all:
      return whole_bytes * (ranks - 1) / ranks;
    case Collective::broadcast:
    case Collective::message:
      return whole_bytes;
    case Collective::barrier:
    case Collective::gather_values:
      return 0;
  }
  return 0;
}

}  // namespace dstrain
