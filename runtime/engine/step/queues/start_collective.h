// start_collective: from an instruction to a call of a communicator.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/core/error.h"
#include "runtime/ir/op.h"

namespace dstrain {

// Starts the collective `op` of a Communicator, or of its StreamCollectives in a `stream`, and returns what the call
// returns. Throws InternalError for other ops.
template <class Collectives, class... InStream>
auto start_collective(Collectives& comm, OpKind op, const Tensor& in, const Tensor& out,
                      InStream&... stream) {
  switch (op) {
    case OpKind::all_reduce:
      return comm.all_reduce(in, stream...);
    case OpKind::reduce_scatter:
      return comm.reduce_scatter(in, out, stream...);
    case OpKind::all_gather:
      return comm.all_gather(in, out, stream...);
    case OpKind::all_to_all:
      return comm.all_to_all(in, out, stream...);
    case OpKind::send:
      return comm.send(in, stream...);
    case OpKind::recv:
      return comm.recv(out, stream...);
    default:
      throw InternalError(fmt::format("{} is no collective", name_of(op)));
  }
}

}  // namespace dstrain
