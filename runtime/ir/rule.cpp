#include "runtime/ir/rule.h"

#include "runtime/ir/ops/attention.h"
#include "runtime/ir/ops/batch_norm.h"
#include "runtime/ir/ops/blocks.h"
#include "runtime/ir/ops/boundary.h"
#include "runtime/ir/ops/collective.h"
#include "runtime/ir/ops/columns.h"
#include "runtime/ir/ops/cross_entropy.h"
#include "runtime/ir/ops/decode.h"
#include "runtime/ir/ops/elementwise.h"
#include "runtime/ir/ops/embed.h"
#include "runtime/ir/ops/experts/exchange.h"
#include "runtime/ir/ops/experts/grouped.h"
#include "runtime/ir/ops/experts/route.h"
#include "runtime/ir/ops/experts/rows.h"
#include "runtime/ir/ops/general/contract.h"
#include "runtime/ir/ops/general/convolution.h"
#include "runtime/ir/ops/general/map.h"
#include "runtime/ir/ops/general/max_pool.h"
#include "runtime/ir/ops/general/reduce.h"
#include "runtime/ir/ops/general/scan.h"
#include "runtime/ir/ops/general/sort.h"
#include "runtime/ir/ops/general/sum_loss.h"
#include "runtime/ir/ops/general/take.h"
#include "runtime/ir/ops/general/uniform.h"
#include "runtime/ir/ops/general/window.h"
#include "runtime/ir/ops/layer_norm.h"
#include "runtime/ir/ops/linear.h"
#include "runtime/ir/ops/low_rank.h"
#include "runtime/ir/ops/one_bit.h"
#include "runtime/ir/ops/optimizer.h"
#include "runtime/ir/ops/rms_norm.h"
#include "runtime/ir/ops/rotary.h"
#include "runtime/ir/ops/step.h"
#include "runtime/ir/ops/transfer.h"

namespace dstrain {
namespace {

// Returns the rule of an op with what the list of ops and the traits of its collective say about it.
constexpr OpRule listed(OpKind kind, std::string_view name, OpFamily family, OpRule rule) {
  if ((family != OpFamily::none) != (rule.done_by == DoneBy::kernel))
    throw InternalError("the list and the rule differ about who does an op");
  if (rule.collective.has_value() != (rule.done_by == DoneBy::collective))
    throw InternalError("a collective has no kind, or another op has one");
  if (rule.done_by == DoneBy::kernel && rule.queue != Queue::compute)
    throw InternalError("a kernel computes on another queue than that of computation");
  rule.kind = kind;
  rule.name = name;
  if (rule.collective) rule.ring_passes = traits_of(*rule.collective).ring_passes;
  return rule;
}

// By kind. Does not compile while an op of the list has no rule.
constexpr OpRule kRules[] = {
#define OP(op, family) listed(OpKind::op, #op, OpFamily::family, ops::op),
#include "runtime/ir/op_list.def"
};

}  // namespace

const OpRule& rule_of(OpKind op) {
  return kRules[static_cast<size_t>(op)];
}

std::string_view name_of(Queue queue) {
  constexpr std::string_view names[kQueues] = {"compute", "comm", "host", "copy", "io"};
  return names[static_cast<int>(queue)];
}

namespace {

// Returns where attributes have the rows of their operands; null: they do not.
template <class Attrs>
auto* place_of_part(Attrs& attrs) {
  if constexpr (requires { attrs.part.all; })
    return &attrs.part;
  else if constexpr (requires { attrs.add.part.all; })
    return &attrs.add.part;
  else
    return static_cast<RowsPart*>(nullptr);
}

}  // namespace

std::optional<RowsPart> part_of(const OpAttrs& attrs) {
  return std::visit(
      [](const auto& of_op) {
        const RowsPart* const part = place_of_part(of_op);
        return part ? std::optional(*part) : std::nullopt;
      },
      attrs);
}

void set_part(OpAttrs& attrs, const RowsPart& part) {
  std::visit(
      [&part](auto& of_op) {
        if (auto* const place = place_of_part(of_op)) *place = part;
      },
      attrs);
}

std::string_view name_of(OpKind op) {
  return rule_of(op).name;
}

namespace {

// Calls `take` for every operand's space.
template <class Take>
void for_spaces(const Program& program, const Instruction& op, const Take& take) {
  for (const auto* list : {&op.reads, &op.writes})
    for (const BufferId id : *list)
      if (id != kNone) take(program.space_of(id));
}

// Throws InternalError unless the op can reach all of its operands where they are.
void check_spaces(const Program& program, const Instruction& op, const OpRule& rule) {
  if (rule.done_by == DoneBy::copies || rule.done_by == DoneBy::drives) return;
  const bool host = runs_on_host(program, op);
  for_spaces(program, op, [&](Space space) {
    check(space == (host ? Space::host : Space::device), "{} of {} has an operand in {} memory",
          rule.name, program.group_name(op), name_of(space));
  });
}

}  // namespace

bool runs_on_host(const Program& program, const Instruction& op) {
  bool host = false;
  if (computes(op.op))
    for_spaces(program, op, [&](Space space) { host = host || space == Space::host; });
  return host;
}

Queue queue_of(const Program& program, const Instruction& op) {
  return runs_on_host(program, op) ? Queue::host : rule_of(op.op).queue;
}

void check_op(const Program& program, const Instruction& op) {
  const OpRule& rule = rule_of(op.op);
  check(op.attrs.index() == 0 || op.attrs.index() == rule.attrs,
        "{} came with the attributes of another op", rule.name);
  check_spaces(program, op, rule);
  if (rule.check) rule.check(program, op);
}

bool is_without_rows(const Program& program, BufferId id) {
  const auto is_operand = [id](const Instruction& op) {
    return std::ranges::find(op.reads, id) != op.reads.end() ||
           std::ranges::find(op.writes, id) != op.writes.end();
  };
  return std::ranges::all_of(program.instructions, [&](const Instruction& op) {
    if (!is_operand(op)) return true;
    const auto* const map = std::get_if<MapAttrs>(&op.attrs);
    return map ? !map->views.empty() : rule_of(op.op).walks_space;
  });
}

Cost cost_of(const Program& program, const Instruction& op) {
  Cost cost;
  const OpRule& rule = rule_of(op.op);
  if (rule.flops) cost.flops = rule.flops(program, op);
  for (const auto* list : {&op.reads, &op.writes})
    for (BufferId id : *list)
      if (id != kNone) cost.bytes += static_cast<double>(program.at(id).bytes());
  return cost;
}

double needed_flops(const Program& program, const Instruction& op) {
  const OpRule& rule = rule_of(op.op);
  // A general op is in the backward phase as a gradient, too.
  const bool repeated = rule.of_model && op.phase != Phase::forward &&
                        (!rule.walks_space || program.at(op.writes[0]).copy_of != kNone);
  return rule.flops && !repeated ? rule.needed_part * rule.flops(program, op) : 0;
}

}  // namespace dstrain
