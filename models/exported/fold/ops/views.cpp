// Operators that see the elements of a tensor in another order or with other sizes. Only reshaping copies, where it must.
#include <algorithm>
#include <numeric>

#include "models/exported/fold/operands.h"
#include "models/exported/fold/pointwise.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

HostTensor without_gaps(const Operands& o, const HostTensor& tensor) {
  if (tensor.strides == row_strides(tensor.sizes)) return tensor;
  o.budget().spend(tensor.elements());
  HostTensor result = make_tensor(o.budget(), tensor.type, tensor.sizes);
  for (Walk walk(tensor.sizes, {&tensor, &result}); !walk.is_done(); walk.next())
    std::copy_n(walk.at(0), size_of(tensor.type), walk.at(1));
  return result;
}

// Whether all elements are one.
bool is_one_element(const HostTensor& tensor) {
  for (size_t i = 0; i < tensor.rank(); ++i)
    if (tensor.sizes[i] > 1 && tensor.strides[i] != 0) return false;
  return true;
}

// Returns the elements with other sizes, of which one may be -1.
HostTensor reshaped(const Operands& o, const HostTensor& tensor, Sizes sizes) {
  int64_t known = 1, open = 0;
  for (const int64_t size : sizes) {
    open += size == -1;
    if (size < -1 || (size >= 0 && __builtin_mul_overflow(known, size, &known)))
      o.fail("has the size {}", size);
  }
  const int64_t elements = tensor.elements();
  if (open == 1 && known > 0 && elements % known == 0)
    std::ranges::replace(sizes, int64_t{-1}, elements / known);
  else if (open > 0 || known != elements)
    o.fail("has {} elements, which do not fit into its sizes", elements);
  if (is_one_element(tensor) && elements > 0) {
    HostTensor one{tensor.type, {}, {}, tensor.offset, tensor.data};
    return expanded(one, sizes).value();
  }
  HostTensor result = without_gaps(o, tensor);
  result.sizes = sizes;
  result.strides = row_strides(sizes);
  return result;
}

Results view(const Operands& o) {
  return {reshaped(o, o.tensor("self"), o.node().wholes("size"))};
}

Results reshape(const Operands& o) {
  return {reshaped(o, o.tensor("self"), o.node().wholes("shape"))};
}

Results flatten(const Operands& o) {
  const HostTensor self = o.tensor("self");
  const size_t first = o.dimension("start_dim", self.rank()),
               last = o.dimension("end_dim", self.rank());
  if (first > last) o.fail("flattens from dimension {} to {}", first, last);
  Sizes sizes(self.sizes.begin(),
              self.sizes.begin() + static_cast<std::ptrdiff_t>(std::min(first, self.rank())));
  int64_t flat = 1;
  for (size_t i = first; i <= last && i < self.rank(); ++i) flat *= self.sizes[i];
  sizes.push_back(flat);
  for (size_t i = last + 1; i < self.rank(); ++i) sizes.push_back(self.sizes[i]);
  return {reshaped(o, self, sizes)};
}

Results expand(const Operands& o) {
  const HostTensor self = o.tensor("self");
  Sizes sizes = o.node().wholes("size");
  if (sizes.size() < self.rank())
    o.fail("has {} sizes for {} dimensions", sizes.size(), self.rank());
  const size_t lead = sizes.size() - self.rank();
  for (size_t i = 0; i < self.rank(); ++i)
    if (sizes[lead + i] == -1) sizes[lead + i] = self.sizes[i];
  const std::optional<HostTensor> result = expanded(self, sizes);
  if (!result || std::ranges::any_of(sizes, [](int64_t size) { return size < 0; }))
    o.fail("has sizes that do not fit");
  return {*result};
}

Results expand_as(const Operands& o) {
  Sizes sizes;
  for (const Size& size : o.info("other").sizes) sizes.push_back(size.value());
  const std::optional<HostTensor> result = expanded(o.tensor("self"), sizes);
  if (!result) o.fail("has sizes that do not fit");
  return {*result};
}

Results broadcast_tensors(const Operands& o) {
  Results tensors = o.tensors("tensors");
  std::vector<Sizes> all;
  for (const HostTensor& tensor : tensors) all.push_back(tensor.sizes);
  const std::optional<Sizes> sizes = broadcast_sizes(all);
  if (!sizes) o.fail("has operands whose sizes do not fit each other");
  for (HostTensor& tensor : tensors) tensor = expanded(tensor, *sizes).value();
  return tensors;
}

Results unsqueeze(const Operands& o) {
  HostTensor result = o.tensor("self");
  const auto at = static_cast<std::ptrdiff_t>(o.dimension("dim", result.rank() + 1));
  result.sizes.insert(result.sizes.begin() + at, 1);
  result.strides.insert(result.strides.begin() + at, 1);
  return {result};
}

// Drops the dimensions of size 1 that `dropped` marks.
HostTensor squeezed(HostTensor tensor, const std::vector<bool>& dropped) {
  for (size_t i = tensor.rank(); i-- > 0;)
    if (dropped[i] && tensor.sizes[i] == 1) {
      tensor.sizes.erase(tensor.sizes.begin() + static_cast<std::ptrdiff_t>(i));
      tensor.strides.erase(tensor.strides.begin() + static_cast<std::ptrdiff_t>(i));
    }
  return tensor;
}

Results squeeze(const Operands& o) {
  const HostTensor self = o.tensor("self");
  if (self.rank() == 0) return {self};
  std::vector<bool> dropped(self.rank(), false);
  if (std::holds_alternative<Size>(*o.node().find("dim")))
    dropped[o.dimension("dim", self.rank())] = true;
  else
    for (const int64_t dim : o.node().wholes("dim")) dropped[o.dimension(dim, self.rank())] = true;
  return {squeezed(self, dropped)};
}

// Returns the tensor with its dimensions in another order.
HostTensor permuted(const Operands& o, const HostTensor& tensor, const std::vector<size_t>& order) {
  HostTensor result = tensor;
  std::vector<bool> used(tensor.rank(), false);
  if (order.size() != tensor.rank())
    o.fail("orders {} of {} dimensions", order.size(), tensor.rank());
  for (size_t i = 0; i < order.size(); ++i) {
    if (used[order[i]]) o.fail("has dimension {} twice", order[i]);
    used[order[i]] = true;
    result.sizes[i] = tensor.sizes[order[i]];
    result.strides[i] = tensor.strides[order[i]];
  }
  return result;
}

Results permute(const Operands& o) {
  const HostTensor self = o.tensor("self");
  std::vector<size_t> order;
  for (const int64_t dim : o.node().wholes("dims")) order.push_back(o.dimension(dim, self.rank()));
  return {permuted(o, self, order)};
}

HostTensor swapped(const Operands& o, const HostTensor& tensor, size_t a, size_t b) {
  std::vector<size_t> order(tensor.rank());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!order.empty()) std::swap(order[a], order[b]);
  return permuted(o, tensor, order);
}

Results transpose(const Operands& o) {
  const HostTensor self = o.tensor("self");
  return {swapped(o, self, o.dimension("dim0", self.rank()), o.dimension("dim1", self.rank()))};
}

Results transposed_matrix(const Operands& o) {
  const HostTensor self = o.tensor("self");
  if (self.rank() < 2) return {self};
  return {swapped(o, self, self.rank() - 2, self.rank() - 1)};
}

// Elements [start, end) of a dimension, every step-th.
HostTensor sliced(HostTensor tensor, size_t dim, int64_t start, int64_t end, int64_t step) {
  start = std::min(start, tensor.sizes[dim]);
  end = std::clamp(end, start, tensor.sizes[dim]);
  tensor.offset += start * tensor.strides[dim];
  tensor.sizes[dim] = (end - start) / step + ((end - start) % step != 0);
  tensor.strides[dim] *= step;
  return tensor;
}

// Returns a place in a dimension; those below 0 count from its end.
int64_t place_or(const Operands& o, std::string_view argument, int64_t otherwise, int64_t size) {
  const int64_t place = o.node().has(argument) ? o.node().whole(argument) : otherwise;
  return place < 0 ? std::max<int64_t>(place + size, 0) : place;
}

Results slice(const Operands& o) {
  const HostTensor self = o.tensor("self");
  if (self.rank() == 0) o.fail("takes a part of a single element");
  const size_t dim = o.dimension("dim", self.rank());
  const int64_t size = self.sizes[dim], step = o.node().whole("step");
  if (step < 1 || step > std::max<int64_t>(size, 1)) {
    if (step < 1) o.fail("has the step {}", step);
    return {sliced(self, dim, place_or(o, "start", 0, size),
                   std::min(place_or(o, "start", 0, size) + 1, place_or(o, "end", size, size)), 1)};
  }
  return {sliced(self, dim, place_or(o, "start", 0, size), place_or(o, "end", size, size), step)};
}

Results select(const Operands& o) {
  HostTensor result = o.tensor("self");
  if (result.rank() == 0) o.fail("takes a part of a single element");
  const size_t dim = o.dimension("dim", result.rank());
  const int64_t size = result.sizes[dim], index = o.node().whole("index");
  if (index < -size || index >= size) o.fail("has the index {} of {}", index, size);
  result.offset += (index < 0 ? index + size : index) * result.strides[dim];
  result.sizes.erase(result.sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  result.strides.erase(result.strides.begin() + static_cast<std::ptrdiff_t>(dim));
  return {result};
}

// Cuts a dimension into parts of these sizes.
Results cut(const Operands& o, const HostTensor& self, size_t dim, const Sizes& parts) {
  Results results;
  int64_t at = 0;
  for (const int64_t part : parts) {
    if (part < 0 || part > self.sizes[dim] - at) o.fail("has a part of {} elements", part);
    results.push_back(sliced(self, dim, at, at + part, 1));
    at += part;
  }
  return results;
}

// Returns the sizes of parts of `part` elements, of which the last may be smaller. There is one at least.
Sizes equal_parts(const Operands& o, int64_t size, int64_t part) {
  if (part < 1) {
    if (size > 0) o.fail("has parts of {} elements", part);
    return {0};
  }
  Sizes parts;
  for (int64_t at = 0; at < size || parts.empty(); at += parts.back()) {
    if (parts.size() > o.node().outputs.size())
      o.fail("has more than {} parts", o.node().outputs.size());
    parts.push_back(std::min(part, size - at));
  }
  return parts;
}

Results split(const Operands& o) {
  const HostTensor self = o.tensor("self");
  if (self.rank() == 0) o.fail("takes a part of a single element");
  const size_t dim = o.dimension("dim", self.rank());
  return cut(o, self, dim, equal_parts(o, self.sizes[dim], o.node().whole("split_size")));
}

Results chunk(const Operands& o) {
  const HostTensor self = o.tensor("self");
  if (self.rank() == 0) o.fail("takes a part of a single element");
  const size_t dim = o.dimension("dim", self.rank());
  const int64_t chunks = o.node().whole("chunks"), size = self.sizes[dim];
  if (chunks < 1) o.fail("has {} parts", chunks);
  return cut(o, self, dim, equal_parts(o, size, size / chunks + (size % chunks != 0)));
}

Results split_with_sizes(const Operands& o) {
  const HostTensor self = o.tensor("self");
  if (self.rank() == 0) o.fail("takes a part of a single element");
  return cut(o, self, o.dimension("dim", self.rank()), o.node().wholes("split_sizes"));
}

constexpr EvaluatedOp kViewOps[] = {
    {"aten.view.default", view},
    {"aten._unsafe_view.default", view},
    {"aten.reshape.default", reshape},
    {"aten.flatten.using_ints", flatten},
    {"aten.expand.default", expand},
    {"aten.expand_as.default", expand_as, "other"},
    {"aten.broadcast_tensors.default", broadcast_tensors},
    {"aten.unsqueeze.default", unsqueeze},
    {"aten.squeeze.dim", squeeze},
    {"aten.squeeze.dims", squeeze},
    {"aten.permute.default", permute},
    {"aten.transpose.int", transpose},
    {"aten.t.default", transposed_matrix},
    {"aten.mT.default", transposed_matrix},
    {"aten.slice.Tensor", slice},
    {"aten.select.int", select},
    {"aten.split.Tensor", split},
    {"aten.chunk.default", chunk},
    {"aten.split_with_sizes.default", split_with_sizes},
};

}  // namespace

std::span<const EvaluatedOp> view_ops() {
  return kViewOps;
}

}  // namespace dstrain::exported
