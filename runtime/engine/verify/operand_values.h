// The values of an instruction's operands, for seeded faults.
#pragma once

#include <cstring>
#include <vector>

#include "runtime/engine/step/observer/step_observer.h"

namespace dstrain {

// Calls `change` with the operand's values as bytes on the host, and writes back what it makes of them if it returns
// true. Returns what it returns.
template <class Change>
bool change_values(const ObservedIssue& issue, BufferId id, Change change) {
  const Tensor tensor = issue.tensor(id);
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
  RemoteMemory* const owner = issue.arenas.owner_of(issue.plan, id);
  if (owner)
    owner->download(bytes.data(), tensor.data, tensor.bytes());
  else
    std::memcpy(bytes.data(), tensor.data, bytes.size());
  if (!change(bytes)) return false;
  if (owner)
    owner->upload(tensor.data, bytes.data(), tensor.bytes());
  else
    std::memcpy(tensor.data, bytes.data(), bytes.size());
  return true;
}

}  // namespace dstrain
