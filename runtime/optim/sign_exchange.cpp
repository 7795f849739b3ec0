#include "runtime/optim/sign_exchange.h"

#include <fmt/format.h>

#include "runtime/ir/codec_errors.h"
#include "runtime/ir/quantized.h"

namespace dstrain {

SignExchange::SignExchange(UnitUpdate& update) : update_(update) {
  if (alone()) return;
  const int64_t elements = update.unit().elements;
  part_ = elements / update.ranks();
  worker_error_ = add_error("worker_error", elements);
  owner_error_ = add_error("owner_error", part_);
  sent_ = add_packed("packed_signs:");
  received_ = add_packed("received_signs:");
  sums_ = add_packed("summed_signs:");
  own_sum_ = update.program().view(sums_, update.rank() * sign_bytes(part_), sign_bytes(part_));
}

void SignExchange::send(BufferId values, SignAttrs attrs) {
  if (alone()) return;
  update_.emit(OpKind::quantize_signs, attrs, {values}, {sent_, worker_error_});
  update_.emit(OpKind::all_to_all, {}, {sent_}, {received_});
  Program& program = update_.program();
  const int64_t at = update_.rank();
  measure(kSignClass, program.view(sent_, at * sign_bytes(part_), sign_bytes(part_)),
          program.view(worker_error_, at * part_, part_));
}

void SignExchange::forward() {
  if (alone()) return;
  update_.emit(OpKind::requantize_signs, {}, {received_}, {own_sum_, owner_error_});
  update_.emit_gather(RankSet::slices, own_sum_, sums_);
  measure(kSignSumClass, own_sum_, owner_error_);
}

void SignExchange::receive(BufferId values) {
  if (!alone()) update_.emit(OpKind::dequantize_signs, {}, {sums_}, {values});
}

BufferId SignExchange::add_error(const std::string& slot, int64_t elements) {
  const BufferId id = update_.add_buffer(slot, elements, Lifetime::persistent);
  update_.program().codec_state.push_back({.name = update_.unit().name,
                                           .slot = slot,
                                           .values = id,
                                           .per_rank = true,
                                           .residual = true});
  return id;
}

// Adds a buffer of as many packed parts as there are ranks.
BufferId SignExchange::add_packed(const std::string& name) {
  return update_.program().add_buffer({.name = name + update_.unit().name,
                                       .shape = {update_.ranks(), sign_bytes(part_)},
                                       .dtype = DType::u8,
                                       .memory = MemoryClass::communication});
}

// Appends the sums of squares of what a packed part has lost, and of what it has left.
void SignExchange::measure(std::string_view of, BufferId packed, BufferId error) {
  Program& program = update_.program();
  const std::string name = codec_error_name(of);
  BufferId all = program.find(name);
  if (all == kNone)
    all = program.add_buffer({.name = name,
                              .shape = {static_cast<int64_t>(program.units.size()), 2},
                              .dtype = DType::f64,
                              .memory = MemoryClass::workspace,
                              .lifetime = Lifetime::persistent,
                              .role = BufferRole::codec_errors});
  const BufferId left =
      program.add_buffer({.name = fmt::format("measured_{}:{}", of, update_.unit().name),
                          .shape = {part_},
                          .memory = MemoryClass::workspace});
  const auto at = 2 * static_cast<int64_t>(&update_.unit() - program.units.data());
  update_.emit(OpKind::zero, {}, {}, {left});  // a skipped step unpacks nothing
  update_.emit(OpKind::dequantize_signs, {}, {packed}, {left});
  update_.emit(OpKind::sum_squares, {}, {error}, {program.view(all, at, 1)});
  update_.emit(OpKind::sum_squares, {}, {left}, {program.view(all, at + 1, 1)});
}

}  // namespace dstrain
