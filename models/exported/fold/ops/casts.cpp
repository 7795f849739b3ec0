// Operators that give a tensor's elements again, in the same or in another type.
#include "models/exported/fold/operands.h"
#include "models/exported/fold/pointwise.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

HostTensor in_type(const Operands& o, const HostTensor& tensor, ScalarType type) {
  if (tensor.type == type) return tensor;
  return in_type_of(tensor.type, [&](auto zero) {
    return map_elements<decltype(zero)>(o.budget(), type, std::array{tensor},
                                        [](auto x) { return x; });
  });
}

// Values are never changed in place, so that a copy is the value itself.
Results same(const Operands& o) {
  return {o.tensor("self")};
}

Results to_type(const Operands& o) {
  const HostTensor self = o.tensor("self");
  return {in_type(o, self, o.type_or("dtype", self.type))};
}

Results type_as(const Operands& o) {
  return {in_type(o, o.tensor("self"), o.info("other").type)};
}

// The values of `src`, repeated to the sizes of `self` and in its type.
Results copy(const Operands& o) {
  const TensorInfo& self = o.info("self");
  Sizes sizes;
  for (const Size& size : self.sizes) sizes.push_back(size.value());
  const std::optional<HostTensor> source = expanded(o.tensor("src"), sizes);
  if (!source) o.fail("has a source that does not fit");
  return {in_type(o, *source, self.type)};
}

constexpr EvaluatedOp kCastOps[] = {
    {"aten._to_copy.default", to_type},
    {"aten.to.dtype", to_type},
    {"aten.to.dtype_layout", to_type},
    {"aten.to.device", to_type},
    {"aten.type_as.default", type_as, "other"},
    {"aten.clone.default", same},
    {"aten.alias.default", same},
    {"aten.contiguous.default", same},
    {"aten.detach.default", same},
    {"aten.lift_fresh_copy.default", same},
    {"aten.copy.default", copy, "self"},
};

}  // namespace

std::span<const EvaluatedOp> cast_ops() {
  return kCastOps;
}

}  // namespace dstrain::exported
