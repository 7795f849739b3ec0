// Coercion: a node as the type that a key asks for, under DeepSpeed's own rules of conversion. Invariant: a
// value that `type_error` accepts converts by the function of its type, and the result is in the key's
// range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/config/json/tree.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain {

// Return the value, or nothing if it has another type. With `quoted`, text and booleans convert to numbers
// and numbers to booleans ("500", "true", 1), as in the sections that DeepSpeed validates.
std::optional<bool> to_boolean(const Node& node, bool quoted = true);
std::optional<int64_t> to_integer(const Node& node, bool quoted = true);
std::optional<double> to_real(const Node& node, bool quoted = true);
std::optional<int64_t> to_bytes(const Node& node);

// Returns whether DeepSpeed validates the section of `key`, so that quoted values are legal in it.
bool takes_quoted(std::string_view key);

// Returns `node` as the table writes it: where any case is accepted, a choice in lower case.
Node in_table_case(const KeySpec& spec, Node node);

// Returns what is wrong with `node` as a value of `spec` (type or range), or an empty string. `node` must
// not be "auto".
std::string type_error(const KeySpec& spec, const Node& node);

// Returns the number, the boolean or the list of them that `node` has in quotes, if `spec` takes that; else nothing.
std::optional<Node> unquoted(const KeySpec& spec, const Node& node);

// Returns what a key expects: "an integer of at least 1". With `whole`, limits are named that no
// sensible value comes near.
std::string expectation(const KeySpec& spec, bool whole = false);

}  // namespace dstrain
