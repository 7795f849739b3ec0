#include "runtime/ir/program.h"

namespace dstrain {

std::string_view name_of(MemoryClass memory) {
  constexpr std::string_view names[kMemoryClasses] = {"parameters",  "gradients",     "optimizer",
                                                      "activations", "communication", "packed",
                                                      "workspace"};
  return names[static_cast<int>(memory)];
}

std::string_view name_of(Queue queue) {
  constexpr std::string_view names[] = {"compute", "comm", "host"};
  return names[static_cast<int>(queue)];
}

BufferId Program::add_buffer(Buffer buffer) {
  buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(buffers.size()) - 1;
}

int32_t Program::add_group(const std::string& name) {
  if (groups.back() != name) groups.push_back(name);
  return static_cast<int32_t>(groups.size()) - 1;
}

BufferId Program::find(std::string_view name) const {
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].name == name) return static_cast<BufferId>(i);
  return kNone;
}

BufferId Program::root(BufferId id) const {
  while (at(id).parent != kNone) id = at(id).parent;
  return id;
}

int Program::parameter_of(BufferId value) const {
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].value == value) return static_cast<int>(i);
  return -1;
}

}  // namespace dstrain
