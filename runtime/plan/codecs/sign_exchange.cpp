#include "runtime/plan/codecs/sign_exchange.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/ir/quantized.h"
#include "runtime/plan/codecs/codecs.h"

namespace dstrain {

SignExchange::SignExchange(Program& program, Place place, size_t unit, const Instruction& like)
    : program_(program), place_(place), unit_(unit), like_(like) {
  if (alone()) return;
  part_ = this->unit().elements / place_.ranks();
  worker_error_ = add_error("worker_error", this->unit().elements);
  owner_error_ = add_error("owner_error", part_);
  sent_ = add_packed("packed_signs:");
  received_ = add_packed("received_signs:");
  sums_ = add_packed("summed_signs:");
  own_sum_ = program_.view(sums_, place_.rank() * sign_bytes(part_), sign_bytes(part_));
}

void SignExchange::send(BufferId values, SignAttrs attrs) {
  if (alone()) return;
  emit(OpKind::quantize_signs, {values}, {sent_, worker_error_}).attrs = attrs;
  emit(OpKind::all_to_all, {sent_}, {received_});
  const int64_t at = place_.rank();
  measure(kSignClass, program_.view(sent_, at * sign_bytes(part_), sign_bytes(part_)),
          program_.view(worker_error_, at * part_, part_));
}

void SignExchange::forward() {
  if (alone()) return;
  emit(OpKind::requantize_signs, {received_}, {own_sum_, owner_error_});
  emit(OpKind::all_gather, {own_sum_}, {sums_});
  measure(kSignSumClass, own_sum_, owner_error_);
}

void SignExchange::receive(BufferId values) {
  if (!alone()) emit(OpKind::dequantize_signs, {sums_}, {values});
}

Instruction& SignExchange::emit(OpKind kind, std::vector<BufferId> reads,
                                std::vector<BufferId> writes) {
  Instruction op = like_;
  op.op = kind;
  op.attrs = {};
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  program_.instructions.push_back(std::move(op));
  return program_.instructions.back();
}

BufferId SignExchange::add_error(const std::string& slot, int64_t elements) {
  const BufferId id = program_.add_buffer({.name = slot + ":" + unit().name,
                                           .shape = {elements},
                                           .memory = MemoryClass::optimizer,
                                           .lifetime = Lifetime::persistent});
  program_.codec_state.push_back(
      {.name = unit().name, .slot = slot, .values = id, .per_rank = true});
  return id;
}

// Adds a buffer of as many packed parts as there are ranks.
BufferId SignExchange::add_packed(const std::string& name) {
  return program_.add_buffer({.name = name + unit().name,
                              .shape = {place_.ranks(), sign_bytes(part_)},
                              .dtype = DType::u8,
                              .memory = MemoryClass::communication});
}

// Appends the sums of squares of what a packed part has lost, and of what it has left.
void SignExchange::measure(std::string_view of, BufferId packed, BufferId error) {
  const std::string name = codec_error_name(of);
  BufferId all = program_.find(name);
  if (all == kNone)
    all = program_.add_buffer({.name = name,
                               .shape = {static_cast<int64_t>(program_.units.size()), 2},
                               .dtype = DType::f64,
                               .memory = MemoryClass::workspace,
                               .lifetime = Lifetime::persistent});
  const BufferId left = program_.add_buffer({.name = fmt::format("measured_{}:{}", of, unit().name),
                                             .shape = {part_},
                                             .memory = MemoryClass::workspace});
  const auto at = static_cast<int64_t>(2 * unit_);
  emit(OpKind::zero, {}, {left});  // a skipped step unpacks nothing
  emit(OpKind::dequantize_signs, {packed}, {left});
  emit(OpKind::sum_squares, {error}, {program_.view(all, at, 1)});
  emit(OpKind::sum_squares, {left}, {program_.view(all, at + 1, 1)});
}

}  // namespace dstrain
