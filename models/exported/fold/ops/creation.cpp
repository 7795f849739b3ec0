// Operators that make tensors of numbers.
#include <algorithm>
#include <cmath>

#include "models/exported/fold/operands.h"
#include "models/exported/fold/pointwise.h"

namespace dstrain::exported {
namespace {

using Results = std::vector<HostTensor>;

// Returns a tensor of one number, which is stored once.
HostTensor filled(const Operands& o, ScalarType type, const Sizes& sizes, const Scalar& number) {
  HostTensor one = make_tensor(o.budget(), type, {});
  std::visit([&](auto x) { storer_of<decltype(x)>(type)(one.data.get(), x); }, number);
  for (const int64_t size : sizes)
    if (size < 0) o.fail("has the size {}", size);
  return expanded(one, sizes).value();
}

Sizes sizes_of(const TensorInfo& info) {
  Sizes sizes;
  for (const Size& size : info.sizes) sizes.push_back(size.value());
  return sizes;
}

ScalarType type_of_number(const Scalar& number) {
  if (std::holds_alternative<bool>(number)) return ScalarType::boolean;
  return std::holds_alternative<double>(number) ? ScalarType::f32 : ScalarType::i64;
}

Results full(const Operands& o) {
  const Scalar number = o.node().scalar("fill_value").value();
  return {filled(o, o.type_or("dtype", type_of_number(number)), o.node().wholes("size"), number)};
}

template <int64_t Number>
Results all_of(const Operands& o) {
  return {filled(o, o.type_or("dtype", ScalarType::f32), o.node().wholes("size"), Number)};
}

// As the tensor `self`, of which only type and sizes are used.
Results filled_like(const Operands& o, const Scalar& number) {
  const TensorInfo& self = o.info("self");
  return {filled(o, o.type_or("dtype", self.type), sizes_of(self), number)};
}

template <int64_t Number>
Results all_like(const Operands& o) {
  return filled_like(o, Number);
}

Results full_like(const Operands& o) {
  return filled_like(o, o.node().scalar("fill_value").value());
}

Results fill(const Operands& o) {
  const TensorInfo& self = o.info("self");
  return {filled(o, self.type, sizes_of(self), o.node().scalar("value").value())};
}

template <int64_t Number>
Results new_all(const Operands& o) {
  return {filled(o, o.type_or("dtype", o.info("self").type), o.node().wholes("size"), Number)};
}

Results new_full(const Operands& o) {
  return {filled(o, o.type_or("dtype", o.info("self").type), o.node().wholes("size"),
                 o.node().scalar("fill_value").value())};
}

Results scalar_tensor(const Operands& o) {
  const Scalar number = o.node().scalar("s").value();
  return {filled(o, o.type_or("dtype", ScalarType::f32), {}, number)};
}

double real_of(const Scalar& number) {
  return std::visit([](auto x) { return static_cast<double>(x); }, number);
}

Scalar number_or(const Operands& o, std::string_view argument, int64_t otherwise) {
  return o.node().find(argument) ? o.node().scalar(argument).value() : otherwise;
}

// start, start + step, ... below end.
Results arange(const Operands& o) {
  const Scalar start = number_or(o, "start", 0), end = number_or(o, "end", 0),
               step = number_or(o, "step", 1);
  bool whole = true;
  for (const Scalar& number : {start, end, step})
    whole = whole && !std::holds_alternative<double>(number);
  const ScalarType type = o.type_or("dtype", whole ? ScalarType::i64 : ScalarType::f32);
  const double count = std::ceil((real_of(end) - real_of(start)) / real_of(step));
  if (!(count >= 0 && count < 0x1p40)) o.fail("makes {} elements", count);
  HostTensor result = make_tensor(o.budget(), type, {static_cast<int64_t>(count)});
  o.budget().spend(result.elements());
  const int64_t size = size_of(type);
  char* at = result.data.get();
  const auto store_whole = storer_of<int64_t>(type);
  const auto store_real = storer_of<double>(type);
  const auto whole_of = [](const Scalar& number) {
    return std::visit([](auto x) { return static_cast<uint64_t>(converted<int64_t>(x)); }, number);
  };
  for (int64_t i = 0; i < result.elements(); ++i, at += size) {
    if (whole && !is_floating(type))
      store_whole(
          at, static_cast<int64_t>(whole_of(start) + static_cast<uint64_t>(i) * whole_of(step)));
    else
      store_real(at, real_of(start) + static_cast<double>(i) * real_of(step));
  }
  return {result};
}

// Ones on the diagonal.
Results eye(const Operands& o) {
  const int64_t rows = o.node().whole("n"),
                columns = o.node().find("m") ? o.node().whole("m") : rows;
  if (rows < 0 || columns < 0) o.fail("has the sizes {} and {}", rows, columns);
  const ScalarType type = o.type_or("dtype", ScalarType::f32);
  HostTensor result = make_tensor(o.budget(), type, {rows, columns});
  const auto store = storer_of<int64_t>(type);
  for (int64_t i = 0; i < std::min(rows, columns); ++i)
    store(result.data.get() + i * (columns + 1) * size_of(type), 1);
  return {result};
}

// The rows and columns of a matrix's elements on one side of a diagonal.
template <bool kLower>
Results triangle_indices(const Operands& o) {
  const int64_t rows = o.node().whole("row"), columns = o.node().whole("col"),
                offset = o.node().whole("offset");
  if (rows < 0 || columns < 0) o.fail("has {} rows and {} columns", rows, columns);
  o.budget().spend(rows * columns);
  std::vector<int64_t> places[2];
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      if (kLower ? j - i <= offset : j - i >= offset) {
        places[0].push_back(i);
        places[1].push_back(j);
      }
  const auto count = static_cast<int64_t>(places[0].size());
  const HostTensor result =
      make_tensor(o.budget(), o.type_or("dtype", ScalarType::i64), {2, count});
  const auto store = storer_of<int64_t>(result.type);
  char* at = result.data.get();
  for (const std::vector<int64_t>& of : places)
    for (const int64_t place : of) {
      store(at, place);
      at += size_of(result.type);
    }
  return {result};
}

constexpr EvaluatedOp kCreationOps[] = {
    {"aten.arange.default", arange},
    {"aten.arange.start", arange},
    {"aten.arange.start_step", arange},
    {"aten.eye.default", eye},
    {"aten.eye.m", eye},
    {"aten.full.default", full},
    {"aten.zeros.default", all_of<0>},
    // What is in a fresh tensor is not defined.
    {"aten.empty.memory_format", all_of<0>},
    {"aten.empty_like.default", all_like<0>, "self"},
    {"aten.new_empty.default", new_all<0>, "self"},
    {"aten.ones.default", all_of<1>},
    {"aten.scalar_tensor.default", scalar_tensor},
    {"aten.full_like.default", full_like, "self"},
    {"aten.zeros_like.default", all_like<0>, "self"},
    {"aten.ones_like.default", all_like<1>, "self"},
    {"aten.fill.Scalar", fill, "self"},
    {"aten.new_full.default", new_full, "self"},
    {"aten.new_zeros.default", new_all<0>, "self"},
    {"aten.new_ones.default", new_all<1>, "self"},
    {"aten.tril_indices.default", triangle_indices<true>},
    {"aten.triu_indices.default", triangle_indices<false>},
};

}  // namespace

std::span<const EvaluatedOp> creation_ops() {
  return kCreationOps;
}

}  // namespace dstrain::exported
