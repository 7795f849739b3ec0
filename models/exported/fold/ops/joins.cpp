// Operators that put tensors beside each other, or repeat and blank parts of one.
#include <algorithm>
#include <limits>

#include "models/exported/fold/operands.h"
#include "models/exported/fold/pointwise.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

// Copies `from`, which has the sizes of `to`, into it and its type.
void copy_into(const Operands& o, const HostTensor& from, const HostTensor& to) {
  o.budget().spend(from.elements());
  in_type_of(from.type, [&](auto zero) {
    const auto load = loader_of<decltype(zero)>(from.type);
    const auto store = storer_of<decltype(zero)>(to.type);
    for (Walk walk(from.sizes, {&from, &to}); !walk.is_done(); walk.next())
      store(walk.at(1), load(walk.at(0)));
  });
}

// Returns the part [at, at + size) of a dimension.
HostTensor part_of(HostTensor tensor, size_t dim, int64_t at, int64_t size) {
  tensor.offset += at * tensor.strides[dim];
  tensor.sizes[dim] = size;
  return tensor;
}

ScalarType common_type(const Results& parts) {
  std::vector<Operand> operands;
  for (const HostTensor& part : parts) operands.push_back({part, false});
  return result_type(operands);
}

HostTensor joined(const Operands& o, const Results& parts, size_t dim, ScalarType type) {
  Sizes sizes = parts[0].sizes;
  sizes[dim] = 0;
  for (const HostTensor& part : parts) {
    Sizes others = part.sizes;
    if (others.size() != sizes.size())
      o.fail("joins tensors of {} and {} dimensions", sizes.size(), others.size());
    if (__builtin_add_overflow(sizes[dim], others[dim], &sizes[dim]))
      o.fail("makes too many elements");
    others[dim] = sizes[dim];
    if (others != sizes) o.fail("joins tensors whose other sizes differ");
  }
  const HostTensor result = make_tensor(o.budget(), type, sizes);
  int64_t at = 0;
  for (const HostTensor& part : parts) {
    copy_into(o, part, part_of(result, dim, at, part.sizes[dim]));
    at += part.sizes[dim];
  }
  return result;
}

Results cat(const Operands& o) {
  Results parts = o.tensors("tensors");
  if (parts.empty()) o.fail("joins nothing");
  const ScalarType type = common_type(parts);
  // PyTorch leaves out empty tensors of one dimension, whatever the others are; they count for the type.
  if (std::erase_if(parts, [](const HostTensor& part) { return part.sizes == Sizes{0}; }) > 0 &&
      parts.empty())
    parts.push_back(o.tensors("tensors")[0]);
  if (parts[0].rank() == 0) o.fail("joins single elements");
  return {joined(o, parts, o.dimension("dim", parts[0].rank()), type)};
}

HostTensor with_dimension(HostTensor tensor, size_t dim) {
  tensor.sizes.insert(tensor.sizes.begin() + static_cast<std::ptrdiff_t>(dim), 1);
  tensor.strides.insert(tensor.strides.begin() + static_cast<std::ptrdiff_t>(dim), 0);
  return tensor;
}

Results stack(const Operands& o) {
  Results parts = o.tensors("tensors");
  if (parts.empty()) o.fail("joins nothing");
  const size_t dim = o.dimension("dim", parts[0].rank() + 1);
  for (HostTensor& part : parts) part = with_dimension(part, std::min(dim, part.rank()));
  return {joined(o, parts, dim, common_type(parts))};
}

// Repeats the tensor as often as `repeats` says for each dimension.
Results repeat(const Operands& o) {
  HostTensor self = o.tensor("self");
  const Sizes repeats = o.node().wholes("repeats");
  if (repeats.size() < self.rank())
    o.fail("has {} repeats for {} dimensions", repeats.size(), self.rank());
  while (self.rank() < repeats.size()) self = with_dimension(self, 0);
  // As a tensor with a dimension for each repetition in front of each that is repeated.
  Sizes sizes, doubled;
  HostTensor source{self.type, {}, {}, self.offset, self.data};
  for (size_t i = 0; i < repeats.size(); ++i) {
    int64_t size = 0;
    if (repeats[i] < 0 || __builtin_mul_overflow(repeats[i], self.sizes[i], &size))
      o.fail("has {} repeats", repeats[i]);
    sizes.push_back(size);
    source.sizes.insert(source.sizes.end(), {repeats[i], self.sizes[i]});
    source.strides.insert(source.strides.end(), {0, self.strides[i]});
  }
  HostTensor result = make_tensor(o.budget(), self.type, sizes);
  HostTensor target = result;
  target.sizes = source.sizes;
  target.strides = row_strides(source.sizes);
  copy_into(o, source, target);
  return {result};
}

// Pads with a number; `pad` has (before, after) from the last dimension on.
HostTensor padded(const Operands& o, const HostTensor& self, const Sizes& pad,
                  const Scalar& number) {
  if (pad.size() % 2 != 0 || pad.size() / 2 > self.rank())
    o.fail("has {} paddings for {} dimensions", pad.size(), self.rank());
  Sizes sizes = self.sizes;
  HostTensor inner = self, target;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t dim = self.rank() - 1 - i;
    const int64_t before = pad[2 * i], after = pad[2 * i + 1];
    const int64_t limit = std::numeric_limits<int32_t>::max();
    if (before < -self.sizes[dim] || after < -self.sizes[dim] || before > limit || after > limit ||
        self.sizes[dim] + before + after < 0)
      o.fail("has the padding {}, {}", before, after);
    sizes[dim] += before + after;
    const int64_t cut_before = std::max<int64_t>(-before, 0),
                  cut_after = std::max<int64_t>(-after, 0);
    inner = part_of(inner, dim, cut_before,
                    std::max<int64_t>(self.sizes[dim] - cut_before - cut_after, 0));
  }
  const HostTensor result = make_tensor(o.budget(), self.type, sizes);
  const HostTensor one = make_tensor(o.budget(), self.type, {});
  std::visit([&](auto x) { storer_of<decltype(x)>(self.type)(one.data.get(), x); }, number);
  copy_into(o, expanded(one, sizes).value(), result);
  target = result;
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t dim = self.rank() - 1 - i;
    target = part_of(target, dim, std::max<int64_t>(pad[2 * i], 0), inner.sizes[dim]);
  }
  copy_into(o, inner, target);
  return result;
}

Results pad(const Operands& o) {
  if (o.node().text("mode") != "constant")
    throw LeftError("padding by other than a number is not computed");
  const Scalar number =
      o.node().has("value") ? o.node().scalar("value").value() : Scalar(int64_t{0});
  return {padded(o, o.tensor("self"), o.node().wholes("pad"), number)};
}

Results constant_pad(const Operands& o) {
  return {padded(o, o.tensor("self"), o.node().wholes("pad"), o.node().scalar("value").value())};
}

// Keeps the elements on one side of a diagonal of the last two dimensions, and makes the others 0.
Results triangle(const Operands& o, bool lower) {
  const HostTensor self = o.tensor("self");
  if (self.rank() < 2) o.fail("has {} dimensions, expected 2", self.rank());
  const int64_t diagonal = o.node().whole("diagonal"), rows = self.sizes[self.rank() - 2],
                columns = self.sizes[self.rank() - 1];
  const HostTensor result = make_tensor(o.budget(), self.type, self.sizes);
  o.budget().spend(self.elements());
  int64_t i = 0;
  for (Walk walk(self.sizes, {&self, &result}); !walk.is_done(); walk.next(), ++i) {
    const int64_t row = i / columns % rows, column = i % columns;
    if (lower ? column - row <= diagonal : column - row >= diagonal)
      std::copy_n(walk.at(0), size_of(self.type), walk.at(1));
  }
  return {result};
}

Results tril(const Operands& o) {
  return triangle(o, true);
}
Results triu(const Operands& o) {
  return triangle(o, false);
}

Results flip(const Operands& o) {
  HostTensor source = o.tensor("self");
  for (const int64_t stated : o.node().wholes("dims")) {
    const size_t dim = o.dimension(stated, source.rank());
    if (source.rank() == 0 || source.sizes[dim] == 0) continue;
    source.offset += (source.sizes[dim] - 1) * source.strides[dim];
    source.strides[dim] = -source.strides[dim];
  }
  const HostTensor result = make_tensor(o.budget(), source.type, source.sizes);
  copy_into(o, source, result);
  return {result};
}

// The differences of neighbours; of truth values, whether they differ.
HostTensor differences(const Operands& o, const HostTensor& tensor, size_t dim) {
  const int64_t size = std::max<int64_t>(tensor.sizes[dim] - 1, 0);
  const std::array neighbours = {part_of(tensor, dim, tensor.sizes[dim] > 0 ? 1 : 0, size),
                                 part_of(tensor, dim, 0, size)};
  return in_type_of(tensor.type, [&](auto zero) {
    using C = decltype(zero);
    return map_elements<C>(o.budget(), tensor.type, neighbours, [](C a, C b) {
      if constexpr (std::is_integral_v<C>)
        return static_cast<C>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
      else
        return a - b;
    });
  });
}

Results diff(const Operands& o) {
  Results parts;
  for (const char* argument : {"prepend", "self", "append"})
    if (o.node().has(argument)) parts.push_back(o.tensor(argument));
  if (parts[0].rank() == 0) o.fail("has no dimension");
  const size_t dim = o.dimension("dim", parts[0].rank());
  HostTensor result = parts.size() == 1 ? parts[0] : joined(o, parts, dim, common_type(parts));
  const int64_t times = o.node().whole("n");
  if (times < 0 || times > 100) o.fail("takes differences {} times", times);
  for (int64_t i = 0; i < times; ++i) result = differences(o, result, dim);
  return {result};
}

constexpr EvaluatedOp kJoinOps[] = {
    {"aten.cat.default", cat},
    {"aten.stack.default", stack},
    {"aten.repeat.default", repeat},
    {"aten.pad.default", pad},
    {"aten.constant_pad_nd.default", constant_pad},
    {"aten.tril.default", tril},
    {"aten.triu.default", triu},
    {"aten.flip.default", flip},
    {"aten.diff.default", diff},
};

}  // namespace

std::span<const EvaluatedOp> join_ops() {
  return kJoinOps;
}

}  // namespace dstrain::exported
