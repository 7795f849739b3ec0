#include "runtime/ir/ops/operands.h"

namespace dstrain::ops {

void Operands::expect(bool ok, std::string_view what) const {
  if (ok) return;
  std::string operands;
  for (const auto* list : {&op_.reads, &op_.writes}) {
    for (BufferId id : *list)
      operands += id == kNone ? std::string(" -")
                              : fmt::format(" {}{}{}", program_.at(id).name,
                                            to_string(program_.at(id).shape),
                                            name_of(program_.at(id).dtype));
    if (list == &op_.reads) operands += " ->";
  }
  throw InternalError(fmt::format("{}: {}; operands:{}", name_of(op_.op), what, operands));
}

void Operands::count(size_t reads_min, size_t reads_max, size_t writes_min,
                     size_t writes_max) const {
  expect(
      op_.reads.size() >= reads_min && op_.reads.size() <= reads_max,
      fmt::format("reads {} operands, expected {} to {}", op_.reads.size(), reads_min, reads_max));
  expect(op_.writes.size() >= writes_min && op_.writes.size() <= writes_max,
         fmt::format("writes {} operands, expected {} to {}", op_.writes.size(), writes_min,
                     writes_max));
}

const Buffer& Operands::in(size_t i) const {
  expect(has_in(i), fmt::format("input {} is absent", i));
  return program_.at(op_.reads[i]);
}

const Buffer& Operands::out(size_t i) const {
  expect(has_out(i), fmt::format("output {} is absent", i));
  return program_.at(op_.writes[i]);
}

void Operands::expect(const Buffer& buffer, int64_t elements, DType dtype) const {
  expect(buffer.shape.elements() == elements && buffer.dtype == dtype,
         fmt::format("{} must have {} elements of {}", buffer.name, elements, name_of(dtype)));
}

DType Operands::values(const Buffer& values) const {
  expect(values.dtype == DType::f32 || is_16bit(values.dtype),
         fmt::format("{} must have values of f32, bf16 or f16", values.name));
  return values.dtype;
}

void Operands::no_alias(int allowed_in, int allowed_out) const {
  for (size_t o = 0; o < op_.writes.size(); ++o)
    for (size_t i = 0; i < op_.reads.size(); ++i) {
      const BufferId r = op_.reads[i], w = op_.writes[o];
      if (r == kNone || w == kNone) continue;
      if (static_cast<int>(i) == allowed_in && static_cast<int>(o) == allowed_out && r == w)
        continue;
      const BufferId a = program_.root(r), b = program_.root(w);
      if (a != b) continue;
      const auto begin = [&](BufferId id) {
        int64_t at = 0;
        for (; program_.at(id).parent != kNone; id = program_.at(id).parent)
          at += program_.at(id).parent_offset;
        return at;
      };
      const int64_t rb = begin(r), wb = begin(w);
      const bool disjoint =
          rb + program_.at(r).shape.elements() <= wb || wb + program_.at(w).shape.elements() <= rb;
      expect(disjoint, fmt::format("output {} overlaps input {}", o, i));
    }
}

}  // namespace dstrain::ops
