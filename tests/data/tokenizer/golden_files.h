// The tokenizers that golden/make_golden.py made, and what it wrote beside them.
#pragma once

#include <string>

#include "runtime/data/tokenizer/tokenizer.h"
#include "tests/support/temp_dir.h"

namespace dstrain {

inline std::string golden_file(const std::string& name) {
  return bytes_of_file(DSTRAIN_SOURCE_DIR "/tests/data/tokenizer/golden/" + name);
}

inline Tokenizer golden_tokenizer(const std::string& name) {
  return Tokenizer(golden_file(name + ".json"), name + ".json");
}

}  // namespace dstrain
