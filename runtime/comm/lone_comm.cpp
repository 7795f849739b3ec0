#include "runtime/comm/lone_comm.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dstrain {

LoneComm::LoneComm(PartOf part) : OrderedComm(0, 1, {}, std::move(part)) {}

LoneComm::~LoneComm() {
  close();
}

Memory LoneComm::allocate(int64_t bytes, const std::string& what) {
  return Memory::anonymous(bytes, what);
}

std::unique_ptr<Communicator> LoneComm::open_part(std::unique_ptr<PartRendezvous> ranks) {
  return std::make_unique<LoneComm>(PartOf{this, ranks->world_ranks()});
}

Stages LoneComm::run(Operation op) {
  const int64_t bytes = op.key.elements * size_of(op.key.dtype);  // of an exchange, all rows
  if (op.key.kind == Collective::gather_values)
    std::copy(op.values.begin(), op.values.end(), op.all_values.begin());
  else if (bytes > 0 && op.in != op.out)
    std::memcpy(op.out, op.in, static_cast<size_t>(bytes));
  co_return;
}

}  // namespace dstrain
