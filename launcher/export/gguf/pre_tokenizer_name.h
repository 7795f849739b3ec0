// The name by which llama.cpp knows how a byte-level tokenizer divides texts into pieces.
#pragma once

#include <string>
#include <string_view>

#include "runtime/data/tokenizer/json/tokenizer_json.h"

namespace dstrain {

class JsonValue;

// Returns the value of tokenizer.ggml.pre. `file`: the whole tokenizer.json, `spec` what it says. Throws UserError if
// llama.cpp divides no texts that way.
std::string pre_tokenizer_name(const JsonValue& file, const TokenizerSpec& spec);

}  // namespace dstrain
