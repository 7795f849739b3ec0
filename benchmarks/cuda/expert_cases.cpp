// The ops of experts. Each expert has as many rows as another.
#include "benchmarks/cuda/case_list.h"

namespace dstrain::bench {

void add_expert_cases(CaseList& list, int64_t r, int64_t c, const std::string& at) {
  constexpr int64_t kExperts = 8, kSlots = 2;
  const int64_t routed = r * kSlots, n = 4 * c, of_expert = routed / kExperts;
  const Operand x = run({r, c}), spread = run({routed, c}), wide = run({routed, n}),
                logits = run({r, kExperts}), weights = f32({r, kSlots}),
                chosen = ids(routed, kExperts), places = numbers({r, kSlots}, 0, 1),
                ends = numbers({kExperts}, of_expert, of_expert), weight = run({kExperts * n, c});
  Operand experts = chosen;
  experts.spec.shape = {r, kSlots};
  const Operand absent{.spec = {}};
  const RouteAttrs route{.normalised = true};
  list.add("route" + at, OpKind::route, route, {logits, absent}, {weights, experts});
  list.add("route_grad" + at, OpKind::route_grad, route, {weights, logits, experts}, {logits});
  list.add("group_rows" + at, OpKind::group_rows, {}, {experts}, {places, ends});
  const Operand all_ends = numbers({2, kExperts}, of_expert, of_expert), counts = ids(4, routed);
  list.add("expert_ends" + at, OpKind::expert_ends, ExpertEndsAttrs{.ranks = 2}, {all_ends},
           {ends, counts});
  list.add("spread_rows" + at, OpKind::spread_rows, {}, {x, places}, {spread});
  list.add("combine_rows" + at, OpKind::combine_rows, {}, {spread, places, weights}, {x});
  list.add("combine_weight_grad" + at, OpKind::combine_weight_grad, {}, {x, spread, places},
           {weights});
  const double flops =
      2 * static_cast<double>(routed) * static_cast<double>(c) * static_cast<double>(n);
  list.add("grouped_linear" + at, OpKind::grouped_linear, {}, {spread, weight, ends}, {wide},
           flops);
  list.add("grouped_input_grad" + at, OpKind::grouped_input_grad, {}, {wide, weight, ends},
           {spread}, flops);
  list.add("grouped_weight_grad" + at, OpKind::grouped_weight_grad, {}, {wide, spread, ends},
           {f32({kExperts * n, c})}, flops);
}

}  // namespace dstrain::bench
