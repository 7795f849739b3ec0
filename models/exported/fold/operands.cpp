#include "models/exported/fold/operands.h"

#include <bit>

#include "models/exported/fold/elements.h"

namespace dstrain::exported {

Operand Operands::operand(std::string_view argument) const {
  const std::optional<Scalar> number = node_.scalar(argument);
  if (!number) return {value(node_.tensor(argument)), false};
  const ScalarType type = std::holds_alternative<bool>(*number)      ? ScalarType::boolean
                          : std::holds_alternative<int64_t>(*number) ? ScalarType::i64
                                                                     : ScalarType::f64;
  HostTensor tensor = make_tensor(budget_, type, {});
  std::visit([&](auto x) { write_as<decltype(x)>(tensor.data.get(), x); }, *number);
  return {tensor, true};
}

std::vector<HostTensor> Operands::tensors(std::string_view argument) const {
  std::vector<HostTensor> values;
  for (const TensorRef ref : node_.tensors(argument)) values.push_back(value(ref));
  return values;
}

HostTensor Operands::value(TensorRef ref) const {
  return values_.at(ref.id);
}

const TensorInfo& Operands::info(std::string_view argument) const {
  if (node_.scalar(argument)) fail("has a number for \"{}\", expected a tensor", argument);
  return graph_.tensor(node_.tensor(argument));
}

ScalarType Operands::type_or(std::string_view argument, ScalarType otherwise) const {
  return node_.has(argument) ? node_.type(argument) : otherwise;
}

size_t Operands::dimension(int64_t stated, size_t rank) const {
  const auto n = static_cast<int64_t>(rank == 0 ? 1 : rank);
  if (stated < -n || stated >= n) fail("has the dimension {} of {}", stated, rank);
  return static_cast<size_t>(stated < 0 ? stated + n : stated);
}

size_t Operands::dimension(std::string_view argument, size_t rank) const {
  return dimension(node_.whole(argument), rank);
}

}  // namespace dstrain::exported
