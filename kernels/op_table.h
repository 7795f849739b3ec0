// How a kernel library finds the kernel of an op: the family that the op belongs to, and for the ops that are
// none of these a table of functions that make their kernels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/ir/kernel.h"

namespace dstrain {

// The groups of ops whose kernels come from different parts of a kernel library.
enum class OpFamily { product, attention, newton_schulz, other };

constexpr OpFamily family_of(OpKind op) {
  switch (op) {
    case OpKind::linear:
    case OpKind::linear_input_grad:
    case OpKind::linear_weight_grad:
    case OpKind::pack_weight:
      return OpFamily::product;
    case OpKind::attention:
    case OpKind::attention_grad:
      return OpFamily::attention;
    case OpKind::orthogonalize:
      return OpFamily::newton_schulz;
    default:
      return OpFamily::other;
  }
}

// A row of the table: an op and the functions that make its kernel. Context: what `make` takes beside the
// spec on this device.
template <class... Context>
struct OpMaker {
  OpKind op;
  std::unique_ptr<Kernel> (*make)(const KernelSpec&, Context...);
  int64_t (*workspace)(const KernelSpec&) = nullptr;  // bytes of scratch memory; null: none
};

// Returns the row of `op`, or null where the table has none.
template <class Maker, size_t n>
const Maker* find_maker(const Maker (&table)[n], OpKind op) {
  const Maker* row = std::find_if(table, table + n, [&](const Maker& r) { return r.op == op; });
  return row == table + n ? nullptr : row;
}

}  // namespace dstrain
