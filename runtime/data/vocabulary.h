// Vocabulary: text <-> ids of `char` and `byte` data, and its file vocab.json:
//   {"format": "char", "size": 65, "characters": ["\n", " ", "!", ...]}   id = position in the list
//   {"format": "byte", "size": 256}                                       id = byte
//   {"format": "bin",  "size": 50257}                                     ids only, no text
// Stands on nlohmann_json. Invariant: decode(encode(text)) is the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

struct Vocabulary {
  DataFormat format = DataFormat::bytes;
  std::vector<uint32_t> characters;  // char: sorted code points, id = position; else empty
  int64_t size = 0;                  // 256 for byte; the vocabulary that the data needs for bin

  // Throws UserError at the first character outside the vocabulary, naming it; for `bin` always.
  std::vector<int32_t> encode(std::string_view text) const;
  // UTF-8 of a character, one byte, or for `bin` the id in decimal. An id beyond `size`, which a model
  // with a larger vocabulary may give, is U+FFFD.
  std::string decode(int32_t id) const;
};

std::string vocabulary_json(const Vocabulary& vocabulary);

// Throws UserError naming `source` where the text is not what vocabulary_json writes.
Vocabulary parse_vocabulary(std::string_view text, const std::string& source);

}  // namespace dstrain
