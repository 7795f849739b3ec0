// The ops that do the work of two others (runtime/ir/op_list.def), as the kernels of the two, one after the other.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <utility>

#include "kernels/operands.h"
#include "runtime/core/error.h"

namespace dstrain {

// The two ops that a joined op consists of, and the operands of the joined op that each of them uses.
struct JoinedOps {
  // One of the two ops, with the numbers of its operands in the joined op (chosen()).
  struct Part {
    OpKind op{};
    OpAttrs attrs{};
    std::array<size_t, 6> in{}, out{};
    size_t reads = 0, writes = 0;
  };
  std::array<Part, 2> parts;
};

// Returns the parts of a layer_norm_grad or add_layer_norm. Throws InternalError for other ops.
inline JoinedOps joined_ops(OpKind op, const OpAttrs& attrs) {
  if (op == OpKind::layer_norm_grad)
    return {{{{OpKind::layer_norm_input_grad, {}, {0, 1, 2, 3, 4, 5}, {0}, 6, 1},
              {OpKind::layer_norm_weight_grad, {}, {0, 1, 3, 4}, {1, 2}, 4, 2}}}};
  check(op == OpKind::add_layer_norm, "{} is not two ops", name_of(op));
  const auto both = attrs_as<AddLayerNormAttrs>(attrs);
  // The second part reads the sum that the first one writes: operand `reads` of the joined op's inputs.
  return {{{{OpKind::add_dropout, both.add, {0, 1}, {0}, 2, 1},
            {OpKind::layer_norm, both.norm, {4, 2, 3}, {1, 2, 3}, 3, 3}}}};
}

// Operands of a part: those of the joined op's inputs, after which come its outputs.
template <class T>
std::array<T, 6> chosen(std::span<const T> in, std::span<const T> out,
                        const std::array<size_t, 6>& which, size_t count) {
  std::array<T, 6> result{};
  for (size_t i = 0; i < count; ++i)
    result[i] = which[i] < in.size() ? in[which[i]] : out[which[i] - in.size()];
  return result;
}

// Calls f(spec) for each part of a joined op.
template <class F>
void for_parts(const KernelSpec& spec, const F& f) {
  for (const JoinedOps::Part& part : joined_ops(spec.op, spec.attrs).parts) {
    const auto in = chosen(spec.in, spec.out, part.in, part.reads);
    const auto out = chosen(spec.out, spec.out, part.out, part.writes);
    f(KernelSpec{
        part.op, part.attrs, {in.data(), part.reads}, {out.data(), part.writes}, spec.threads});
  }
}

// Returns the scratch memory of the larger part; workspace(spec): that of one.
template <class F>
int64_t joined_workspace(const KernelSpec& spec, const F& workspace) {
  int64_t bytes = 0;
  for_parts(spec, [&](const KernelSpec& part) { bytes = std::max(bytes, workspace(part)); });
  return bytes;
}

// Returns a kernel that runs those of the two parts; make(spec): makes one.
template <class F>
std::unique_ptr<Kernel> make_joined(const KernelSpec& spec, const F& make) {
  std::vector<std::shared_ptr<Kernel>> kernels;
  for_parts(spec, [&](const KernelSpec& part) { kernels.push_back(make(part)); });
  return kernel_of(
      [kernels, parts = joined_ops(spec.op, spec.attrs).parts](const KernelCall& call) {
        for (size_t i = 0; i < parts.size(); ++i) {
          const auto in = chosen(call.in, call.out, parts[i].in, parts[i].reads);
          const auto out = chosen(call.out, call.out, parts[i].out, parts[i].writes);
          KernelCall one = call;
          one.in = {in.data(), parts[i].reads};
          one.out = {out.data(), parts[i].writes};
          kernels[i]->run(one);
        }
      });
}

}  // namespace dstrain
