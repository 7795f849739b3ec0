// Operators that order elements along a dimension.
#include <algorithm>
#include <bit>
#include <numeric>

#include "models/exported/fold/elements.h"
#include "models/exported/fold/operands.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

// Sets `order` to the places of a line's elements in order. Equal ones stay in order, and NaN is larger than every number.
template <class C>
void order_line(const std::vector<C>& line, bool descending, std::vector<int64_t>& order) {
  const auto less = [&line](int64_t a, int64_t b) {
    const C x = line[static_cast<size_t>(a)], y = line[static_cast<size_t>(b)];
    return x < y || (y != y && x == x);
  };
  std::iota(order.begin(), order.end(), int64_t{0});
  std::ranges::stable_sort(order, [descending, &less](int64_t a, int64_t b) {
    return descending ? less(b, a) : less(a, b);
  });
}

// Returns the first `kept` elements along a dimension, and their places.
Results ordered(const Operands& o, const HostTensor& self, size_t dim, int64_t kept,
                bool descending) {
  const int64_t size = self.sizes[dim], bytes = size_of(self.type);
  if (kept < 0 || kept > size) o.fail("takes {} of {} elements", kept, size);
  Sizes sizes = self.sizes;
  sizes[dim] = kept;
  const HostTensor values = make_tensor(o.budget(), self.type, sizes),
                   places = make_tensor(o.budget(), ScalarType::i64, sizes);
  o.budget().spend(self.elements() * std::bit_width(static_cast<uint64_t>(size)));
  HostTensor lines = self, to = values, at = places;
  lines.sizes[dim] = to.sizes[dim] = at.sizes[dim] = std::min<int64_t>(kept, 1);
  const int64_t from_step = self.strides[dim] * bytes, to_step = values.strides[dim] * bytes,
                place_step = places.strides[dim] * size_of(ScalarType::i64);
  const auto store = storer_of<int64_t>(ScalarType::i64);
  in_type_of(self.type, [&](auto number) {
    using C = decltype(number);
    const auto load = loader_of<C>(self.type);
    std::vector<C> line(static_cast<size_t>(size));
    std::vector<int64_t> order(line.size());
    for (Walk walk(lines.sizes, {&lines, &to, &at}); !walk.is_done(); walk.next()) {
      for (int64_t i = 0; i < size; ++i)
        line[static_cast<size_t>(i)] = load(walk.at(0) + i * from_step);
      order_line(line, descending, order);
      for (int64_t i = 0; i < kept; ++i) {
        const int64_t place = order[static_cast<size_t>(i)];
        std::copy_n(walk.at(0) + place * from_step, bytes, walk.at(1) + i * to_step);
        store(walk.at(2) + i * place_step, place);
      }
    }
  });
  return {values, places};
}

// Returns the operand, which has dimensions.
HostTensor tensor_with_dimensions(const Operands& o) {
  const HostTensor self = o.tensor("self");
  if (self.rank() == 0) throw LeftError("it has one element");
  return self;
}

Results sort(const Operands& o) {
  const HostTensor self = tensor_with_dimensions(o);
  const size_t dim = o.dimension("dim", self.rank());
  return ordered(o, self, dim, self.sizes[dim], o.node().flag("descending"));
}

Results argsort(const Operands& o) {
  return {sort(o)[1]};
}

Results topk(const Operands& o) {
  const HostTensor self = tensor_with_dimensions(o);
  return ordered(o, self, o.dimension("dim", self.rank()), o.node().whole("k"),
                 o.node().flag("largest"));
}

constexpr EvaluatedOp kSortOps[] = {
    {"aten.sort.default", sort},       {"aten.sort.stable", sort},
    {"aten.argsort.default", argsort}, {"aten.argsort.stable", argsort},
    {"aten.topk.default", topk},
};

}  // namespace

std::span<const EvaluatedOp> sort_ops() {
  return kSortOps;
}

}  // namespace dstrain::exported
