// A run's tokenizer as the fields of a GGUF file, from which llama.cpp makes its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/formats/gguf.h"

namespace dstrain {

struct GgufTokenizer {
  std::vector<GgufField> fields;
  std::vector<std::string> warnings;  // what the user should know, a sentence each
};

// Returns the fields of the tokenizer in a folder, for a model of so many token ids. `directory` empty: there is none, and
// llama.cpp reads and writes ids alone. Throws UserError for a tokenizer by which llama.cpp would divide texts otherwise.
GgufTokenizer gguf_tokenizer(const std::string& directory, int64_t vocabulary);

}  // namespace dstrain
