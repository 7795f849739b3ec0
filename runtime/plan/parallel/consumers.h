// What becomes of the result of a product, as far as it decides whether ranks can have some of its columns each.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "runtime/ir/operand_axes.h"
#include "runtime/ir/program.h"

namespace dstrain {

// How the ranks of a tensor group can divide the columns of a product's result.
struct ColumnUse {
  int64_t sections = 1;     // of columns, each of which is divided
  bool vocabulary = false;  // the columns are classes of a loss
};

// Returns whether a product's weight is this matrix of a low-rank adapter.
bool is_adapter_product(const Program& program, const Instruction& op, AdapterMatrix matrix);

// What becomes of every value of a forward pass.
class Consumers {
 public:
  // `ranks`: of the tensor group. `program` must outlive this object.
  Consumers(const Program& program, int ranks);

  // Returns how the columns of `value` can be divided: only operations on single columns, or on whole heads, lie between
  // it and what adds over them, which is another product or a loss; operands that are added to it are divided in the same
  // way. nullopt: they cannot, as where attention has fewer heads of keys than there are ranks.
  std::optional<ColumnUse> columns(BufferId value) const {
    const auto found = uses_.find(value);
    return found == uses_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  // Returns whether all columns of what the instruction writes come from products whose weights are parameters, by
  // operations on single columns or heads: ranks can make some of them each.
  bool starts(const Instruction& op, const OpAxes& axes) const;
  // Returns what columns() is of a value with these readers, if it is known of all that they write.
  std::optional<ColumnUse> common_use(BufferId value,
                                      const std::vector<const Instruction*>& readers) const;
  std::optional<ColumnUse> use(const Instruction& op, BufferId value) const;
  // Returns how the columns of an operand of an operation on single columns or heads can be divided, as all of its results
  // are divided likewise.
  std::optional<ColumnUse> use_of_results(const Instruction& op, const OpAxes& axes,
                                          const OperandAxes& operand) const;

  const Program& program_;
  int ranks_;
  std::unordered_map<BufferId, std::vector<const Instruction*>> readers_;
  std::unordered_set<BufferId> started_;          // values for which starts() holds
  std::unordered_map<BufferId, ColumnUse> uses_;  // of the values whose columns can be divided
};

}  // namespace dstrain
