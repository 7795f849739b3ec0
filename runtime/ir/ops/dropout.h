// Dropout among the attributes of ops, whichever op has it.
#pragma once

#include <optional>
#include <variant>

#include "runtime/ir/op.h"

namespace dstrain {

// Calls `f` with the attributes that have the probability of dropout, if an op with these attributes has dropout.
template <class Attrs, class F>
void for_dropout(Attrs& attrs, const F& f) {
  std::visit(
      [&f](auto& of_op) {
        if constexpr (requires { of_op.dropout; })
          f(of_op);
        else if constexpr (requires { of_op.add.dropout; })
          f(of_op.add);
      },
      attrs);
}

// Returns the probability of dropout; 0 for an op without dropout.
inline float dropout_of(const OpAttrs& attrs) {
  float probability = 0;
  for_dropout(attrs, [&probability](const auto& a) { probability = a.dropout; });
  return probability;
}

// Returns the attributes with the mask of dropout of the first rows or heads. Nothing where there is no dropout, and
// where the rows or heads are the first ones.
inline std::optional<OpAttrs> with_first_mask(OpAttrs attrs) {
  bool changes = false;
  for_dropout(attrs, [&changes](auto& a) {
    const auto begin_at_0 = [&](int64_t& first) {
      changes = a.dropout > 0 && first != 0;
      first = 0;
    };
    if constexpr (requires { a.part; })
      begin_at_0(a.part.first);
    else
      begin_at_0(a.first_head);
  });
  if (!changes) return std::nullopt;
  return attrs;
}

}  // namespace dstrain
