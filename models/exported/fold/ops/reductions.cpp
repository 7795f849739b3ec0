// Sums, extremes and running sums over dimensions. Fractions are added as double and rounded once.
#include <algorithm>
#include <cmath>
#include <limits>

#include "models/exported/fold/operands.h"
#include "models/exported/fold/pointwise.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

// Which dimensions are reduced.
std::vector<bool> reduced_dims(const Operands& o, size_t rank) {
  std::vector<bool> reduced(std::max<size_t>(rank, 1), !o.node().has("dim"));
  if (!o.node().has("dim")) return reduced;
  const Argument& dim = *o.node().find("dim");
  Sizes stated =
      std::holds_alternative<Size>(dim) ? Sizes{o.node().whole("dim")} : o.node().wholes("dim");
  if (stated.empty()) reduced.assign(reduced.size(), true);
  for (const int64_t d : stated) reduced[o.dimension(d, rank)] = true;
  return reduced;
}

// Returns a tensor of `type` without the reduced dimensions (or with 1 for them), each element of which is that of
// `compute(before, element)` over the elements that it stands for, from `first` on. Numbers are of type C meanwhile.
template <class C, class Compute>
HostTensor reduced(const Operands& o, const HostTensor& self, ScalarType type, C first,
                   Compute compute) {
  const std::vector<bool> gone = reduced_dims(o, self.rank());
  const bool keep = o.node().find("keepdim") && o.node().flag("keepdim");
  Sizes kept = self.sizes, shown;
  for (size_t i = 0; i < self.rank(); ++i) {
    if (gone[i]) kept[i] = 1;
    if (!gone[i] || keep) shown.push_back(kept[i]);
  }
  constexpr ScalarType inner = std::is_same_v<C, double> ? ScalarType::f64 : ScalarType::i64;
  const HostTensor sums = make_tensor(o.budget(), inner, kept);
  HostTensor result = make_tensor(o.budget(), type, kept);
  const auto load_sum = loader_of<C>(inner);
  const auto store_sum = storer_of<C>(inner);
  for (Walk walk(kept, {&sums}); !walk.is_done(); walk.next()) store_sum(walk.at(0), first);
  o.budget().spend(self.elements());
  const HostTensor target = expanded(sums, self.sizes).value();
  const auto load = loader_of<C>(self.type);
  for (Walk walk(self.sizes, {&self, &target}); !walk.is_done(); walk.next())
    store_sum(walk.at(1), compute(load_sum(walk.at(1)), load(walk.at(0))));
  const auto store = storer_of<C>(type);
  for (Walk walk(kept, {&sums, &result}); !walk.is_done(); walk.next())
    store(walk.at(1), load_sum(walk.at(0)));
  result.sizes = shown;
  result.strides = row_strides(shown);
  return result;
}

int64_t wrapping_sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

// Whole numbers and truth values are added in 64 bits.
ScalarType sum_type(const Operands& o, ScalarType type) {
  return o.type_or("dtype", is_floating(type) ? type : ScalarType::i64);
}

Results sum(const Operands& o) {
  const HostTensor self = o.tensor("self");
  const ScalarType type = sum_type(o, self.type);
  if (is_floating(type))
    return {reduced(o, self, type, 0.0, [](double a, double b) { return a + b; })};
  return {reduced(o, self, type, int64_t{0}, wrapping_sum)};
}

Results mean(const Operands& o) {
  const HostTensor self = o.tensor("self");
  const ScalarType type = o.type_or("dtype", self.type);
  if (!is_floating(type)) o.fail("has the mean of whole numbers");
  const std::vector<bool> gone = reduced_dims(o, self.rank());
  double count = 1;
  for (size_t i = 0; i < self.rank(); ++i)
    if (gone[i]) count *= static_cast<double>(self.sizes[i]);
  const HostTensor sums =
      reduced(o, self, ScalarType::f64, 0.0, [](double a, double b) { return a + b; });
  return {map_elements<double>(o.budget(), type, std::array{sums},
                               [count](double x) { return x / count; })};
}

// NaN where an element is.
template <class Better>
Results extreme(const Operands& o, Better better) {
  const HostTensor self = o.tensor("self");
  if (self.elements() == 0) o.fail("has no element");
  const auto choose = [better](auto a, auto b) { return a != a || better(a, b) ? a : b; };
  if (is_floating(self.type))
    return {reduced(o, self, self.type, better(1.0, 0.0) ? -HUGE_VAL : HUGE_VAL, choose)};
  const int64_t worst =
      better(1, 0) ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  return {reduced(o, self, self.type, worst, choose)};
}

Results largest(const Operands& o) {
  return extreme(o, [](auto a, auto b) { return a > b; });
}
Results smallest(const Operands& o) {
  return extreme(o, [](auto a, auto b) { return a < b; });
}

// Truth values of bytes are bytes, as they were before PyTorch had any.
ScalarType truth_type(const HostTensor& self) {
  return self.type == ScalarType::u8 ? ScalarType::u8 : ScalarType::boolean;
}

// Whether any or all elements are other than 0.
Results any_of(const Operands& o) {
  const HostTensor self = o.tensor("self");
  return {reduced(o, self, truth_type(self), 0.0,
                  [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; })};
}
Results every_of(const Operands& o) {
  const HostTensor self = o.tensor("self");
  return {reduced(o, self, truth_type(self), 1.0,
                  [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; })};
}

// Returns the running sums in `type`, which are computed as C.
template <class C>
HostTensor running_sums(const Operands& o, const HostTensor& self, ScalarType type, size_t dim) {
  const HostTensor result = make_tensor(o.budget(), type, self.sizes);
  o.budget().spend(result.elements());
  HostTensor first = self, to = result;
  first.sizes[dim] = to.sizes[dim] = std::min<int64_t>(self.sizes[dim], 1);
  const auto load = loader_of<C>(self.type);
  const auto store = storer_of<C>(type);
  const int64_t from_step = self.strides[dim] * size_of(self.type),
                to_step = result.strides[dim] * size_of(type);
  for (Walk walk(first.sizes, {&first, &to}); !walk.is_done(); walk.next()) {
    C sum = 0;
    for (int64_t i = 0; i < self.sizes[dim]; ++i) {
      const C next = load(walk.at(0) + i * from_step);
      if constexpr (std::is_same_v<C, int64_t>)
        sum = wrapping_sum(sum, next);
      else
        sum += next;
      store(walk.at(1) + i * to_step, sum);
    }
  }
  return result;
}

Results cumsum(const Operands& o) {
  const HostTensor self = o.tensor("self");
  const ScalarType type = sum_type(o, self.type);
  const size_t dim = o.dimension("dim", self.rank());
  if (self.rank() == 0) throw LeftError("it has one element");
  if (is_floating(type)) return {running_sums<double>(o, self, type, dim)};
  return {running_sums<int64_t>(o, self, type, dim)};
}

constexpr EvaluatedOp kReductionOps[] = {
    {"aten.sum.default", sum},       {"aten.sum.dim_IntList", sum},
    {"aten.mean.default", mean},     {"aten.mean.dim", mean},
    {"aten.max.default", largest},   {"aten.amax.default", largest},
    {"aten.min.default", smallest},  {"aten.amin.default", smallest},
    {"aten.any.default", any_of},    {"aten.any.dim", any_of},
    {"aten.any.dims", any_of},       {"aten.all.default", every_of},
    {"aten.all.dim", every_of},      {"aten.all.dims", every_of},
    {"aten.cumsum.default", cumsum},
};

}  // namespace

std::span<const EvaluatedOp> reduction_ops() {
  return kReductionOps;
}

}  // namespace dstrain::exported
