#include <optional>
#include <utility>

#include "runtime/ir/kernel_spec.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// Returns the instruction that does what `first` and then `second` do; nothing where there is no op for it.
std::optional<Instruction> joined(const Instruction& first, const Instruction& second) {
  for (int op = 0; op < kOpKinds; ++op) {
    const OpRule& rule = rule_of(static_cast<OpKind>(op));
    if (!rule.joins || rule.joins->first != first.op || rule.joins->second != second.op) continue;
    std::optional<Instruction> one = rule.joins->join(first, second);
    if (!one) continue;
    one->op = rule.kind;
    one->writes.insert(one->writes.end(), second.writes.begin(), second.writes.end());
    return one;
  }
  return std::nullopt;
}

bool issued_together(const Instruction& a, const Instruction& b) {
  return a.when == b.when && a.phase == b.phase && a.chunk == b.chunk;
}

}  // namespace

void join_norms(Program& program, const KernelLibrary& library, int threads) {
  std::vector<Instruction>& list = program.instructions;
  std::vector<Instruction> result;
  result.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if (i + 1 < list.size() && issued_together(list[i], list[i + 1])) {
      std::optional<Instruction> one = joined(list[i], list[i + 1]);
      if (one && library.fuses(SpecStorage(program, *one, threads).get())) {
        result.push_back(std::move(*one));
        ++i;
        continue;
      }
    }
    result.push_back(std::move(list[i]));
  }
  list = std::move(result);
}

}  // namespace dstrain
