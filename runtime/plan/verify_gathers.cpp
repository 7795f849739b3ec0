#include "runtime/plan/verify_gathers.h"

#include <unordered_map>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/mesh.h"

namespace dstrain {
namespace {

struct Stay {         // how long parameters stay gathered
  size_t begin, end;  // positions in the order: the gather, the last use
  BufferId buffer;
};

// Returns whether the issue before one that gathers gathers another block of the same parameters.
bool continues_gather(const Plan& plan, size_t i) {
  const Program& program = plan.program;
  const auto op_at = [&](size_t k) -> const Instruction& {
    return program.instructions[static_cast<size_t>(plan.order[k].instruction)];
  };
  if (i == 0 || op_at(i - 1).op != OpKind::all_gather || op_at(i).op != OpKind::all_gather)
    return false;
  const BufferId before = op_at(i - 1).writes[0], mine = op_at(i).writes[0];
  return program.root(before) == program.root(mine) &&
         program.at(before).parent_offset < program.at(mine).parent_offset;
}

// Returns every stay, ordered by the gathers, the last one first. What is gathered packed counts as what it is unpacked
// to, from the gather on.
std::vector<Stay> find_stays(const Plan& plan) {
  const Program& program = plan.program;
  const std::unordered_map<BufferId, BufferId> unpacked = unpacked_gathers(program);
  std::vector<Stay> stays;
  std::unordered_map<BufferId, size_t> last_use;
  for (size_t i = plan.order.size(); i-- > 0;) {
    const Instruction& op = program.instructions[static_cast<size_t>(plan.order[i].instruction)];
    const BufferId gathered = gathered_from(program, op, unpacked);
    if (gathered != kNone) {
      if (continues_gather(plan, i)) continue;
      const auto use = last_use.find(gathered);
      check(use != last_use.end(), "{} is gathered for {} and never used",
            program.at(gathered).name, program.group_name(op));
      stays.push_back({i, use->second, gathered});
      last_use.erase(use);
    }
    for (const BufferId id : op.reads)
      if (id != kNone) last_use.try_emplace(program.root(id), i);
  }
  return stays;
}

}  // namespace

void verify_gathers(const Plan& plan) {
  const std::vector<Stay> stays = find_stays(plan);
  std::vector<int64_t> elements(plan.order.size() + 1), units(plan.order.size() + 1);
  for (const Stay& stay : stays) {
    const int64_t n = plan.program.at(stay.buffer).shape.elements();
    elements[stay.begin] += n;
    elements[stay.end + 1] -= n;
    ++units[stay.begin];
    --units[stay.end + 1];
  }
  int64_t live = 0, count = 0;
  for (size_t i = 0; i < plan.order.size(); ++i) {
    live += elements[i];
    count += units[i];
    check(live <= plan.max_live_elements || count <= 1,
          "{} elements of {} units are gathered at once, {} are allowed", live, count,
          plan.max_live_elements);
  }
}

}  // namespace dstrain
