// Vocabulary: conversion between text and ids. Its file is vocab.json (docs/formats.md):
//   {"format": "char", "size": 65, "characters": ["\n", " ", "!", ...]}   id = position in the list
//   {"format": "byte", "size": 256}                                       id = byte
//   {"format": "bin",  "size": 50257}                                     ids only, no text
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

struct Vocabulary {
  DataFormat format = DataFormat::bytes;
  std::vector<uint32_t> characters;  // of char: sorted code points, id = position
  int64_t size = 0;                  // for byte 256; for bin the largest id of the data + 1

  // Returns the ids of `text`. Throws UserError, which names the character, if one is not in the vocabulary; for
  // `bin` always.
  std::vector<int32_t> encode(std::string_view text) const;
  // Returns the character in UTF-8, one byte, or for `bin` the id in decimal. An id of `size` or above, which a
  // model with a larger vocabulary can produce, is U+FFFD.
  std::string decode(int32_t id) const;
  // Returns how many ids there are, for a line about the data: "vocabulary 65"; of `bin`, whose ids may be fewer than a
  // model's, "ids up to 1998".
  std::string size_text() const;
};

// Returns "U+000A", or "\"x\" (U+0078)" for a visible character.
std::string character_text(uint32_t code);

std::string vocabulary_json(const Vocabulary& vocabulary);

// Returns whether the text may be that of vocabulary_json, and is not the vocab.json of a tokenizer, which gives tokens ids.
bool is_vocabulary(std::string_view text);

// Throws UserError, which names `source`, if the text is not that of vocabulary_json.
Vocabulary parse_vocabulary(std::string_view text, const std::string& source);

// Returns the vocabulary of a run on text: of its output directory, or of its vocab.json. Throws UserError if there is
// none, or the run was trained on token ids.
Vocabulary vocabulary_of_run(const std::string& run);

}  // namespace dstrain
