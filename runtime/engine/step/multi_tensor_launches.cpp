#include "runtime/engine/step/multi_tensor_launches.h"

#include <algorithm>

#include "runtime/ir/kernel_spec.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

constexpr size_t kLongest = 64;  // instructions that are compared with each other

bool overlap(const Tensor& a, const Tensor& b) {
  const auto* const at = static_cast<const std::byte*>(a.data);
  const auto* const other = static_cast<const std::byte*>(b.data);
  return at && other && at < other + b.bytes() && other < at + a.bytes();
}

// The instructions of a step, with their operands.
class Finder {
 public:
  Finder(const Plan& plan, const std::function<Tensor(BufferId)>& tensor)
      : plan_(plan), tensor_(tensor) {}

  const Instruction& op(size_t position) const {
    return plan_.program.instructions[static_cast<size_t>(plan_.order[position].instruction)];
  }

  // Returns the end of the instructions from `first` on that are of the same op and independent of each other.
  size_t end_of_run(size_t first) const {
    size_t end = first + 1;
    while (end < std::min(plan_.order.size(), first + kLongest) && op(end).op == op(first).op &&
           op(end).when == When::step_end && !runs_on_host(plan_.program, op(end)) &&
           independent(first, end))
      ++end;
    return end;
  }

  // Returns a launch of instructions [first, end) or of the first of them; without a kernel if there is none.
  MultiTensorLaunch launch(const KernelLibrary& library, size_t first, size_t end) const {
    std::vector<SpecStorage> storage;
    std::vector<KernelSpec> specs;
    storage.reserve(end - first);
    for (size_t i = first; i < end; ++i) {
      storage.emplace_back(plan_.program, op(i), plan_.threads);
      specs.push_back(storage.back().get());
    }
    MultiTensorLaunch launch{first};
    launch.kernel = library.make_multi_tensor(specs, launch.count);
    if (launch.kernel) add_calls(launch);
    return launch;
  }

 private:
  // Returns whether the instruction at `last` uses nothing that those of [first, last) write, and they nothing of it.
  bool independent(size_t first, size_t last) const {
    const auto meets = [&](const Instruction& writer, const Instruction& user) {
      for (const BufferId written : writer.writes)
        for (const auto* list : {&user.reads, &user.writes})
          for (const BufferId used : *list)
            if (overlap(tensor_(written), tensor_(used))) return true;
      return false;
    };
    for (size_t i = first; i < last; ++i)
      if (meets(op(i), op(last)) || meets(op(last), op(i))) return false;
    return true;
  }

  void add_calls(MultiTensorLaunch& launch) const {
    for (size_t i = launch.first; i < launch.first + launch.count; ++i)
      for (const auto* list : {&op(i).reads, &op(i).writes})
        for (const BufferId id : *list) launch.operands.push_back(tensor_(id));
    const std::span<const Tensor> operands(launch.operands);
    size_t next = 0;
    for (size_t i = launch.first; i < launch.first + launch.count; ++i) {
      KernelCall call;
      call.in = operands.subspan(next, op(i).reads.size());
      call.out = operands.subspan(next + op(i).reads.size(), op(i).writes.size());
      call.accumulate = op(i).accumulate == Accumulate::always;
      next += op(i).reads.size() + op(i).writes.size();
      launch.calls.push_back(call);
    }
  }

  const Plan& plan_;
  const std::function<Tensor(BufferId)>& tensor_;
};

}  // namespace

MultiTensorLaunches::MultiTensorLaunches(const Plan& plan, const KernelLibrary& library,
                                         const std::function<Tensor(BufferId)>& tensor) {
  const Finder find(plan, tensor);
  for (size_t i = 0; i < plan.order.size(); ++i) {
    const Instruction& op = find.op(i);
    if (op.when != When::step_end || !has_kernel(op.op) || runs_on_host(plan.program, op)) continue;
    if (i + 1 == plan.order.size() || find.op(i + 1).op != op.op) continue;
    if (!find.launch(library, i, i + 2).kernel) continue;  // most operations have no such kernels
    const size_t end = find.end_of_run(i);
    if (end - i < 2) continue;
    MultiTensorLaunch launch = find.launch(library, i, end);
    i += launch.count - 1;
    launches_.push_back(std::move(launch));
  }
}

const MultiTensorLaunch* MultiTensorLaunches::at(size_t position) const {
  const auto it = std::ranges::lower_bound(launches_, position, {}, &MultiTensorLaunch::first);
  return it != launches_.end() && it->first == position ? &*it : nullptr;
}

void MultiTensorLaunches::run(const MultiTensorLaunch& launch, const StepState* state) {
  MultiTensorLaunch& own = launches_[static_cast<size_t>(&launch - launches_.data())];
  for (KernelCall& call : own.calls) call.state = state;
  own.kernel->run(own.calls);
}

}  // namespace dstrain
