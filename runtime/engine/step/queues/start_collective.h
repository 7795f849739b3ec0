// start_collective: from an instruction to a call of a communicator.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/core/error.h"
#include "runtime/ir/rule.h"

namespace dstrain {

// Returns how many rows each rank sends to each in an exchange of rows, whose counts are given; nothing for other collectives.
inline RowCounts row_counts(const Instruction& op, const Tensor& rows, const Tensor& counts) {
  if (rule_of(op.op).collective != Collective::exchange_rows) return {};
  return {.counts = counts.as<const int32_t>(),
          .ranks = static_cast<int>(counts.shape[0]),
          .back = attrs_as<ExchangeAttrs>(op.attrs).back,
          .columns = rows.shape[-1]};
}

// Starts the collective `op` of a Communicator, or of its StreamCollectives in a `stream`, and returns what the call
// returns. `rows`: of an exchange of rows. Throws InternalError for other ops.
template <class Collectives, class... InStream>
auto start_collective(Collectives& comm, OpKind op, const Tensor& in, const Tensor& out,
                      const RowCounts& rows, InStream&... stream) {
  const OpRule& rule = rule_of(op);
  check(rule.collective.has_value(), "{} is no collective", rule.name);
  switch (*rule.collective) {
    case Collective::all_reduce:
      return comm.all_reduce(in, stream...);
    case Collective::reduce_scatter:
      return comm.reduce_scatter(in, out, stream...);
    case Collective::all_gather:
      return comm.all_gather(in, out, stream...);
    case Collective::all_to_all:
      return comm.all_to_all(in, out, stream...);
    case Collective::exchange_rows:
      return comm.exchange_rows(in, out, rows, stream...);
    case Collective::message:  // one end has a tensor to send, the other one to receive
      return in ? comm.send(in, stream...) : comm.recv(out, stream...);
    default:
      throw InternalError(fmt::format("{}: no instruction starts it", rule.name));
  }
}

}  // namespace dstrain
