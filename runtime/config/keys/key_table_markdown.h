// The text of docs/config-keys.md, written from the key table.
#pragma once

#include <string>

#include "runtime/config/keys/table/model_registry.h"

namespace dstrain {

// Returns the whole page: a table per section, with type, default and state of every key.
std::string key_table_markdown(const ModelRegistry& models);

}  // namespace dstrain
