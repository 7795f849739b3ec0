// Operators that take elements by their places.
#include <algorithm>
#include <optional>

#include "models/exported/fold/operands.h"
#include "models/exported/fold/pointwise.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

// Returns a place in a dimension of `size`.
int64_t place_in(const Operands& o, int64_t index, int64_t size) {
  if (index < 0 || index >= size) o.fail("takes the element {} of {}", index, size);
  return index;
}

// The same, with places below 0 that count from the end.
int64_t place_from_end(const Operands& o, int64_t index, int64_t size) {
  return place_in(o, index < 0 && index >= -size ? index + size : index, size);
}

void check_index(const Operands& o, const HostTensor& index) {
  if (is_floating(index.type)) o.fail("has places that are {}", name_of(index.type));
  if (index.type == ScalarType::boolean || index.type == ScalarType::u8)
    throw LeftError(
        "it takes the elements where a condition holds, whose number depends on values");
}

// Element by element: self[index[i][j]][j] where `dim` is the first.
Results gather(const Operands& o) {
  const HostTensor self = o.tensor("self"), index = o.tensor("index");
  check_index(o, index);
  if (self.rank() != index.rank()) o.fail("has {} and {} dimensions", self.rank(), index.rank());
  if (self.rank() == 0) throw LeftError("it takes the only element");
  const size_t dim = o.dimension("dim", self.rank());
  HostTensor source = self;
  source.sizes = index.sizes;
  source.strides[dim] = 0;
  for (size_t i = 0; i < self.rank(); ++i)
    if (i != dim && index.sizes[i] > self.sizes[i])
      o.fail("takes {} of {} elements", index.sizes[i], self.sizes[i]);
  const HostTensor result = make_tensor(o.budget(), self.type, index.sizes);
  o.budget().spend(result.elements());
  const auto load = loader_of<int64_t>(index.type);
  const int64_t size = size_of(self.type);
  for (Walk walk(index.sizes, {&index, &source, &result}); !walk.is_done(); walk.next())
    std::copy_n(
        walk.at(1) + place_in(o, load(walk.at(0)), self.sizes[dim]) * self.strides[dim] * size,
        size, walk.at(2));
  return {result};
}

// The indices of index.Tensor: one for each of the first dimensions, or none where all elements are taken.
struct Indices {
  std::vector<std::optional<HostTensor>> by_dim;
  Sizes sizes;       // to which those that are there are broadcast
  size_t first = 0;  // dimension of the result with the first of these sizes
};

Indices read_indices(const Operands& o, size_t rank) {
  Indices indices;
  std::vector<Sizes> all;
  std::vector<size_t> dims;
  for (const TensorRef ref : o.node().tensors("indices")) {
    indices.by_dim.emplace_back();
    if (!ref) continue;
    indices.by_dim.back() = o.value(ref);
    check_index(o, *indices.by_dim.back());
    all.push_back(indices.by_dim.back()->sizes);
    dims.push_back(indices.by_dim.size() - 1);
  }
  if (dims.empty() || indices.by_dim.size() > rank)
    o.fail("has {} indices for {} dimensions", indices.by_dim.size(), rank);
  indices.by_dim.resize(rank);
  const std::optional<Sizes> sizes = broadcast_sizes(all);
  if (!sizes) o.fail("has indices whose sizes do not fit each other");
  indices.sizes = *sizes;
  // Where other dimensions lie between those that are indexed, their place is not told, and they come first.
  indices.first = dims.back() - dims.front() + 1 == dims.size() ? dims.front() : 0;
  return indices;
}

// self[index, :, index]: the indexed dimensions become those of the indices.
Results index(const Operands& o) {
  const HostTensor self = o.tensor("self");
  const Indices indices = read_indices(o, self.rank());
  const auto span = static_cast<std::ptrdiff_t>(indices.sizes.size());
  // The source with strides of 0 for the dimensions of the indices, and each index repeated over the others.
  HostTensor source{self.type, {}, {}, self.offset, self.data};
  for (size_t i = 0; i < self.rank(); ++i)
    if (!indices.by_dim[i]) {
      source.sizes.push_back(self.sizes[i]);
      source.strides.push_back(self.strides[i]);
    }
  const auto first = static_cast<std::ptrdiff_t>(indices.first);
  source.sizes.insert(source.sizes.begin() + first, indices.sizes.begin(), indices.sizes.end());
  source.strides.insert(source.strides.begin() + first, static_cast<size_t>(span), 0);
  std::vector<HostTensor> places;
  Sizes sizes, strides;
  for (size_t i = 0; i < self.rank(); ++i) {
    if (!indices.by_dim[i]) continue;
    HostTensor place = expanded(*indices.by_dim[i], indices.sizes).value();
    place.strides.insert(place.strides.begin(), indices.first, 0);
    place.strides.resize(source.rank(), 0);
    place.sizes = source.sizes;
    places.push_back(place);
    sizes.push_back(self.sizes[i]);
    strides.push_back(self.strides[i]);
  }
  const HostTensor result = make_tensor(o.budget(), self.type, source.sizes);
  o.budget().spend(result.elements());
  std::vector<const HostTensor*> tensors{&source, &result};
  std::vector<int64_t (*)(const char*)> load;
  for (const HostTensor& place : places) {
    tensors.push_back(&place);
    load.push_back(loader_of<int64_t>(place.type));
  }
  const int64_t size = size_of(self.type);
  for (Walk walk(source.sizes, tensors); !walk.is_done(); walk.next()) {
    int64_t at = 0;
    for (size_t i = 0; i < places.size(); ++i)
      at += place_from_end(o, load[i](walk.at(2 + i)), sizes[i]) * strides[i];
    std::copy_n(walk.at(0) + at * size, size, walk.at(1));
  }
  return {result};
}

// Rows of a dimension by a list of places.
HostTensor rows_of(const Operands& o, const HostTensor& self, const HostTensor& index, size_t dim) {
  check_index(o, index);
  HostTensor source = self, places = index;
  const auto at = static_cast<std::ptrdiff_t>(dim);
  source.sizes.erase(source.sizes.begin() + at);
  source.strides.erase(source.strides.begin() + at);
  source.sizes.insert(source.sizes.begin() + at, index.sizes.begin(), index.sizes.end());
  source.strides.insert(source.strides.begin() + at, index.rank(), 0);
  places.strides.insert(places.strides.begin(), dim, 0);
  places.strides.resize(source.rank(), 0);
  places.sizes = source.sizes;
  const HostTensor result = make_tensor(o.budget(), self.type, source.sizes);
  o.budget().spend(result.elements());
  const auto load = loader_of<int64_t>(index.type);
  const int64_t size = size_of(self.type);
  for (Walk walk(source.sizes, {&places, &source, &result}); !walk.is_done(); walk.next())
    std::copy_n(
        walk.at(1) + place_in(o, load(walk.at(0)), self.sizes[dim]) * self.strides[dim] * size,
        size, walk.at(2));
  return result;
}

Results index_select(const Operands& o) {
  const HostTensor self = o.tensor("self"), index = o.tensor("index");
  if (self.rank() == 0 || index.rank() != 1) throw LeftError("it takes other than rows of a list");
  return {rows_of(o, self, index, o.dimension("dim", self.rank()))};
}

Results embedding(const Operands& o) {
  const HostTensor weight = o.tensor("weight");
  if (weight.rank() != 2) o.fail("has a table of {} dimensions", weight.rank());
  return {rows_of(o, weight, o.tensor("indices"), 0)};
}

constexpr EvaluatedOp kGatherOps[] = {
    {"aten.gather.default", gather},
    {"aten.index.Tensor", index},
    {"aten.index_select.default", index_select},
    {"aten.embedding.default", embedding},
};

}  // namespace

std::span<const EvaluatedOp> gather_ops() {
  return kGatherOps;
}

}  // namespace dstrain::exported
