#include "runtime/ir/kernel_spec.h"

namespace dstrain {

SpecStorage::SpecStorage(const Program& program, const Instruction& op, int threads) {
  const auto list = [&](const std::vector<BufferId>& ids) {
    std::vector<TensorSpec> specs;
    for (BufferId id : ids)
      specs.push_back(id == kNone ? TensorSpec{}
                                  : TensorSpec{program.at(id).shape, program.at(id).dtype});
    return specs;
  };
  in_ = list(op.reads);
  out_ = list(op.writes);
  spec_ = {.op = op.op, .attrs = op.attrs, .in = in_, .out = out_, .threads = threads};
}

}  // namespace dstrain
