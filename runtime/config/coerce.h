// Coercion: a Node as the type that a key asks for, as generously as DeepSpeed reads it and no more.
// Stands on the key table. Invariant: a value that `type_error` lets pass converts by the function of
// its type, and the result is within the key's range.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/key_table.h"

namespace dstrain {

// `quoted`: text and booleans count as numbers and the reverse ("500", "true", 1), as in the sections
// that DeepSpeed validates.
std::optional<bool> to_boolean(const Node& node, bool quoted = true);
std::optional<int64_t> to_integer(const Node& node, bool quoted = true);
std::optional<double> to_real(const Node& node, bool quoted = true);

// Whether DeepSpeed validates the section of `key`, so that quoted scalars are legal in it.
bool takes_quoted(std::string_view key);

// What is wrong with `node` as a value of `spec`: type or range; empty: nothing. `node` is not "auto".
std::string type_error(const KeySpec& spec, const Node& node);

// "an integer of at least 1"; `whole` with upper limits that no sensible value comes near.
std::string expectation(const KeySpec& spec, bool whole = false);

}  // namespace dstrain
