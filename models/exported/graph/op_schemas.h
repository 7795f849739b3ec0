// The schemas of PyTorch's operators: the names of their arguments, the types, and the defaults, which an archive leaves
// out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/exported/graph/argument.h"

namespace dstrain::exported {

// An argument of an operator.
struct SchemaArgument {
  enum class Type : uint8_t {
    tensor,
    scalar,
    whole,
    real,
    boolean,
    text,
    scalar_type,
    memory_format
  };
  std::string name;
  Type type = Type::tensor;
  bool is_list = false;
  bool is_optional = false;         // None is taken
  bool has_optional_items = false;  // None is taken in the list
  size_t length = 0;                // of a list for which one value stands for all, or 0
  std::optional<Argument> fallback;
};

// An operator: "aten.linear.default" and its arguments in order. Where a tensor lies, its layout and a generator of random
// numbers are left out.
struct OpSchema {
  std::string target;
  std::vector<SchemaArgument> arguments;
};

// Returns the schema of an operator, or null if it is not known here. The first call reads the table.
const OpSchema* find_schema(std::string_view target);

// Returns all schemas by their targets.
const std::vector<OpSchema>& all_schemas();

// Whether an argument of this name says where or how a tensor lies, which the reader ignores.
bool is_ignored_argument(std::string_view name);

// Returns the argument in the type that the schema states (a whole number for a fraction, one number for a list of them),
// or nothing if it has another.
std::optional<Argument> as_stated(Argument argument, const SchemaArgument& schema);

// The table: a schema a line.
std::string_view op_schema_table();

}  // namespace dstrain::exported
