// The constants of a graph that is lowered.
#include <cmath>
#include <limits>

#include "models/exported/fold/elements.h"
#include "models/exported/lower/lowering.h"

namespace dstrain::exported {
namespace {

// Numbers that f32 has exactly, in which formulas compute integers.
constexpr int64_t kMostExact = int64_t{1} << 24;

}  // namespace

Value Lowering::constant_value(TensorRef ref, const HostTensor& tensor) {
  Shape shape;
  for (const int64_t size : tensor.sizes) shape.append(size);
  const auto read = loader_of<double>(tensor.type);
  std::vector<float> values;
  const bool integers = is_integer(tensor.type);
  std::vector<int32_t> numbers;
  bool uniform = true;
  double first = 0;
  for (Walk walk(tensor.sizes, {&tensor}); !walk.is_done(); walk.next()) {
    const double x = read(walk.at(0));
    if (values.empty() && numbers.empty()) first = x;
    uniform = uniform && (x == first || (std::isnan(x) && std::isnan(first)));
    if (!integers) {
      values.push_back(static_cast<float>(x));
    } else if (std::abs(x) > static_cast<double>(std::numeric_limits<int32_t>::max())) {
      fail_user("constant {} has the integer {}: expected one of 32 bits", graph().tensor(ref).name,
                x);
    } else {
      numbers.push_back(static_cast<int32_t>(x));
    }
  }
  if (uniform && (!integers || std::abs(first) <= kMostExact))
    return expand(number(first, tensor.type), shape);
  const void* data = integers ? static_cast<const void*>(numbers.data()) : values.data();
  const BufferId id = builder_.constant(graph().tensor(ref).name, space_of(shape),
                                        integers ? DType::i32 : DType::f32, data);
  return whole(id, shape, tensor.type);
}

const HostTensor* Lowering::constant(const Node& node, std::string_view argument) const {
  const auto held = folded_.constants.find(node.tensor(argument).id);
  return held == folded_.constants.end() ? nullptr : &held->second;
}

Value Lowering::list(const Node& node, std::string_view name, const Shape& shape,
                     const std::vector<int32_t>& elements) {
  return whole(
      builder_.constant(fmt::format("{}_{}", node.name, name), shape, DType::i32, elements.data()),
      shape, ScalarType::i64);
}

Value Lowering::list(const Node& node, std::string_view name, const Shape& shape,
                     const std::vector<float>& elements) {
  return whole(
      builder_.constant(fmt::format("{}_{}", node.name, name), shape, DType::f32, elements.data()),
      shape, ScalarType::f32);
}

}  // namespace dstrain::exported
