#include "models/exported/graph/op_schemas.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

using Type = SchemaArgument::Type;

// A type's name in a schema.
struct TypeName {
  std::string_view name;
  Type type;
};

constexpr std::array kTypeNames = {TypeName{"Tensor", Type::tensor},
                                   TypeName{"Scalar", Type::scalar},
                                   TypeName{"SymInt", Type::whole},
                                   TypeName{"int", Type::whole},
                                   TypeName{"float", Type::real},
                                   TypeName{"bool", Type::boolean},
                                   TypeName{"str", Type::text},
                                   TypeName{"ScalarType", Type::scalar_type},
                                   TypeName{"MemoryFormat", Type::memory_format}};

template <class Number>
Number number_of(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check(error == std::errc() && end == text.data() + text.size(), "\"{}\" is no default", text);
  return value;
}

bool is_fraction(std::string_view text) {
  return text.find_first_of(".e") != std::string_view::npos;
}

// Returns the default that a schema writes as `text`, which is not None.
Argument default_of(std::string_view text, const SchemaArgument& schema) {
  if (text.starts_with('[')) {
    std::vector<Size> values;
    for (std::string_view rest = text.substr(1); rest != "]";) {
      const size_t end = rest.find_first_of(",]");
      values.emplace_back(number_of<int64_t>(rest.substr(0, end)));
      rest.remove_prefix(rest[end] == ',' ? end + 2 : end);
    }
    return values;
  }
  if (text.starts_with('"')) return std::string(text.substr(1, text.size() - 2));
  if (text == "True" || text == "False") return text == "True";
  if (schema.type == Type::memory_format) return static_cast<MemoryFormat>(number_of<int>(text));
  if (schema.type == Type::scalar_type)  // PyTorch's own number, one less than the archive's
    return scalar_type_of(number_of<int64_t>(text) + 1).value();
  if (is_fraction(text)) return number_of<double>(text);
  return Size(number_of<int64_t>(text));
}

// Reads "int[2]? dim=1".
SchemaArgument read_argument(std::string_view text) {
  SchemaArgument argument;
  const size_t blank = text.find(' ');
  std::string_view type = text.substr(0, blank), name = text.substr(blank + 1), fallback;
  if (const size_t equals = name.find('='); equals != std::string_view::npos) {
    fallback = name.substr(equals + 1);
    name = name.substr(0, equals);
  }
  argument.name = name;
  if ((argument.is_optional = type.ends_with('?'))) type.remove_suffix(1);
  if (const size_t bracket = type.find('['); bracket != std::string_view::npos) {
    argument.is_list = true;
    const std::string_view length = type.substr(bracket + 1, type.size() - bracket - 2);
    if (!length.empty()) argument.length = number_of<size_t>(length);
    type = type.substr(0, bracket);
    if ((argument.has_optional_items = type.ends_with('?'))) type.remove_suffix(1);
  }
  const auto* const known = std::ranges::find(kTypeNames, type, &TypeName::name);
  check(known != kTypeNames.end(), "\"{}\" has an unknown type", text);
  argument.type = known->type;
  if (fallback == "None") {
    argument.fallback = Argument();
  } else if (!fallback.empty()) {
    argument.fallback = as_stated(default_of(fallback, argument), argument);
    check(argument.fallback.has_value(), "\"{}\" has a default of another type", text);
  }
  return argument;
}

// Reads "linear.default(Tensor input, Tensor weight, Tensor? bias=None)".
OpSchema read_schema(std::string_view line) {
  const size_t bracket = line.find('(');
  OpSchema schema{fmt::format("aten.{}", line.substr(0, bracket)), {}};
  std::string_view rest = line.substr(bracket + 1, line.size() - bracket - 2);
  while (!rest.empty()) {
    size_t end = 0;
    for (int depth = 0; end < rest.size() && (depth > 0 || rest[end] != ','); ++end)
      depth += (rest[end] == '[') - (rest[end] == ']');
    schema.arguments.push_back(read_argument(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return schema;
}

std::vector<OpSchema> read_schemas() {
  std::vector<OpSchema> schemas;
  std::string_view rest = op_schema_table();
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (end > 0) schemas.push_back(read_schema(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  std::ranges::sort(schemas, {}, &OpSchema::target);
  return schemas;
}

// Returns a list with `length` items where it has one that stands for all.
template <class T>
std::vector<T> spread(std::vector<T> list, size_t length) {
  if (list.size() == 1 && length > 1) list.resize(length, T(list[0]));
  return list;
}

std::optional<Argument> list_as_stated(Argument argument, const SchemaArgument& schema) {
  if (const auto* whole = std::get_if<Size>(&argument); whole && schema.length > 0)
    argument = std::vector<Size>{*whole};
  if (const auto* real = std::get_if<double>(&argument); real && schema.length > 0)
    argument = std::vector<double>{*real};
  if (auto* tensors = std::get_if<std::vector<TensorRef>>(&argument)) {
    if (schema.type == Type::tensor) {
      if (schema.has_optional_items || std::ranges::all_of(*tensors, &TensorRef::operator bool))
        return argument;
      return std::nullopt;
    }
    if (tensors->empty()) argument = std::vector<Size>();  // the archive's way of an empty list
  }
  if (auto* sizes = std::get_if<std::vector<Size>>(&argument)) {
    if (sizes->empty() && schema.type == Type::tensor) return std::vector<TensorRef>();
    if (schema.type == Type::whole) return spread(std::move(*sizes), schema.length);
    if (schema.type == Type::real && std::ranges::all_of(*sizes, &Size::is_fixed)) {
      std::vector<double> reals;
      for (const Size& size : *sizes) reals.push_back(static_cast<double>(size.value()));
      return spread(std::move(reals), schema.length);
    }
    return std::nullopt;
  }
  if (auto* reals = std::get_if<std::vector<double>>(&argument))
    return schema.type == Type::real ? std::optional(spread(std::move(*reals), schema.length))
                                     : std::nullopt;
  const bool fits =
      (schema.type == Type::boolean && std::holds_alternative<std::vector<bool>>(argument)) ||
      (schema.type == Type::text && std::holds_alternative<std::vector<std::string>>(argument));
  return fits ? std::optional(std::move(argument)) : std::nullopt;
}

bool fits_type(const Argument& argument, Type type) {
  const bool is_number = std::holds_alternative<Size>(argument) ||
                         std::holds_alternative<double>(argument) ||
                         std::holds_alternative<bool>(argument);
  switch (type) {
    case Type::tensor:  // PyTorch takes a number for a tensor
      return is_number || std::holds_alternative<TensorRef>(argument);
    case Type::scalar:
      return is_number;
    case Type::whole:
      return std::holds_alternative<Size>(argument);
    case Type::real:
      return std::holds_alternative<double>(argument);
    case Type::boolean:
      return std::holds_alternative<bool>(argument);
    case Type::text:
      return std::holds_alternative<std::string>(argument);
    case Type::scalar_type:
      return std::holds_alternative<ScalarType>(argument);
    case Type::memory_format:
      return std::holds_alternative<MemoryFormat>(argument);
  }
  return false;
}

}  // namespace

const std::vector<OpSchema>& all_schemas() {
  static const std::vector<OpSchema> schemas = read_schemas();
  return schemas;
}

const OpSchema* find_schema(std::string_view target) {
  const std::vector<OpSchema>& schemas = all_schemas();
  const auto it = std::ranges::lower_bound(schemas, target, {}, &OpSchema::target);
  return it != schemas.end() && it->target == target ? &*it : nullptr;
}

bool is_ignored_argument(std::string_view name) {
  return name == "device" || name == "layout" || name == "pin_memory" || name == "non_blocking" ||
         name == "generator";
}

std::optional<Argument> as_stated(Argument argument, const SchemaArgument& schema) {
  if (std::holds_alternative<std::monostate>(argument))
    return schema.is_optional ? std::optional(std::move(argument)) : std::nullopt;
  if (schema.is_list) return list_as_stated(std::move(argument), schema);
  if (const auto* whole = std::get_if<Size>(&argument);
      whole && schema.type == Type::real && whole->is_fixed())
    argument = static_cast<double>(whole->value());
  return fits_type(argument, schema.type) ? std::optional(std::move(argument)) : std::nullopt;
}

}  // namespace dstrain::exported
