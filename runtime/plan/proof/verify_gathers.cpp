#include <map>
#include <unordered_map>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/proof/verify.h"

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
    return plan.instruction_of(plan.order[k]);
  };
  const auto gathers = [&](size_t k) {
    return rule_of(op_at(k).op).collective == Collective::all_gather;
  };
  if (i == 0 || !gathers(i - 1) || !gathers(i)) return false;
  const BufferId before = op_at(i - 1).writes[0], mine = op_at(i).writes[0];
  return program.root(before) == program.root(mine) &&
         program.at(before).parent_offset < program.at(mine).parent_offset;
}

// Returns every stay, ordered by the gathers, the last one first. What is gathered packed counts as what it is unpacked
// to, from the gather on.
std::vector<Stay> find_stays(const Plan& plan) {
  const Program& program = plan.program;
  std::vector<Stay> stays;
  std::unordered_map<BufferId, size_t> last_use;
  for (size_t i = plan.order.size(); i-- > 0;) {
    const Instruction& op = plan.instruction_of(plan.order[i]);
    const BufferId gathered = gathered_from(program, op);
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
  std::vector<int64_t> elements(plan.order.size() + 1);
  // The layers whose parameters come and go at a position: one layer may exceed the limit, its frozen unit included.
  std::vector<std::vector<int>> come(plan.order.size() + 1), go(plan.order.size() + 1);
  for (const Stay& stay : stays) {
    const Buffer& gathered = plan.program.at(stay.buffer);
    const int64_t n = gathered.shape.elements();
    elements[stay.begin] += n;
    elements[stay.end + 1] -= n;
    const int layer = plan.program.unit(gathered.gathered_unit).first_sublayer;
    come[stay.begin].push_back(layer);
    go[stay.end + 1].push_back(layer);
  }
  int64_t live = 0;
  std::map<int, int> layers;  // that are there, with the number of their units
  for (size_t i = 0; i < plan.order.size(); ++i) {
    live += elements[i];
    for (const int layer : go[i])
      if (--layers[layer] == 0) layers.erase(layer);
    for (const int layer : come[i]) ++layers[layer];
    check(live <= plan.max_live_elements || layers.size() <= 1,
          "{} elements of {} units are gathered at once, {} are allowed", live, layers.size(),
          plan.max_live_elements);
  }
}

}  // namespace dstrain
