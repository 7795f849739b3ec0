#include "models/resnet/graph_writer.h"

#include <fmt/format.h>

namespace dstrain::residual {

using exported::InputKind;

TensorRef GraphWriter::tensor(std::string name, ScalarType type,
                              const std::vector<int64_t>& sizes) {
  graph_.tensors.push_back({.name = std::move(name),
                            .type = type,
                            .sizes = {sizes.begin(), sizes.end()},
                            .strides = {},
                            .offset = {}});
  return {static_cast<int32_t>(graph_.tensors.size() - 1)};
}

TensorRef GraphWriter::input(const std::string& name, ScalarType type,
                             const std::vector<int64_t>& sizes) {
  const TensorRef ref = tensor(name, type, sizes);
  graph_.inputs.push_back({.kind = InputKind::user, .tensor = ref, .name = name});
  facts_.roles[name] = InputRole::array;
  return ref;
}

TensorRef GraphWriter::parameter(const std::string& name, const std::vector<int64_t>& sizes,
                                 Init init, float scale) {
  const TensorRef ref = tensor(name, ScalarType::f32, sizes);
  graph_.tensors.back().requires_grad = true;
  graph_.inputs.push_back({.kind = InputKind::parameter, .tensor = ref, .name = name});
  facts_.parameters[name] = {.name = name, .init = init, .scale = scale};
  return ref;
}

TensorRef GraphWriter::running(const std::string& name, int64_t values, Init init) {
  const TensorRef ref = tensor(name, ScalarType::f32, {values});
  graph_.inputs.push_back({.kind = InputKind::buffer, .tensor = ref, .name = name});
  facts_.running[name] = {.name = name, .init = init};
  return ref;
}

TensorRef GraphWriter::add(const std::string& target,
                           std::vector<std::pair<std::string, Argument>> arguments,
                           const std::vector<int64_t>& sizes, ScalarType type) {
  const std::string name = fmt::format("{}_{}", module_, graph_.nodes.size());
  const TensorRef result = tensor(name, type, sizes);
  graph_.nodes.push_back({.name = name,
                          .target = target,
                          .arguments = std::move(arguments),
                          .outputs = {result},
                          .module_path = module_,
                          .module_type = {},
                          .source = {}});
  return result;
}

void GraphWriter::output(const std::string& name, TensorRef number) {
  graph_.outputs.push_back({.tensor = number, .name = name});
}

std::vector<int64_t> GraphWriter::sizes(TensorRef tensor) const {
  std::vector<int64_t> sizes;
  for (const exported::Size& size : graph_.tensor(tensor).sizes) sizes.push_back(size.value());
  return sizes;
}

Argument whole_numbers(std::vector<int64_t> numbers) {
  return std::vector<exported::Size>(numbers.begin(), numbers.end());
}

}  // namespace dstrain::residual
