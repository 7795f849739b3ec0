// Fields of config.json that all families of transformers' models have in common, and rules for those of one family.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/config/keys/table/key_table.h"

namespace dstrain::models {

// Returns the row of a field that changes nothing here, whatever its value is.
KeySpec harmless(std::string_view key, std::string_view note);

// Returns the row of a field that is legal with the value `only` (JSON text), transformers' default; `note` says what
// another value would ask for.
KeySpec fixed(std::string_view key, Type type, std::string_view only, std::string_view note);

// Returns the fields of every config.json, and `own` behind them.
std::vector<KeySpec> fields_with(const std::vector<KeySpec>& own);

}  // namespace dstrain::models
