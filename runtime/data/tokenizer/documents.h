// The documents of text files and their token ids, encoded on all threads of the process, in the files' order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// The ids of the next part of a file, and the places among them where documents begin.
struct EncodedPart {
  std::vector<uint32_t> ids;
  std::vector<size_t> starts;
};

// What was met in files.
struct DocumentCounts {
  int64_t bytes = 0, documents = 0, tokens = 0;  // bytes: of the files
  int64_t text_bytes = 0;                        // of the documents
  std::map<std::string, int64_t>
      ignored;                // members of JSON lines that are not the text, and how often
  int64_t invalid = 0;        // places that are no UTF-8
  std::string first_invalid;  // "FILE: offset 12"; empty: none
};

// Takes the parts, in order. `done`: bytes of the file so far.
using TakePart = std::function<void(const EncodedPart& part, int64_t done)>;

// Returns whether the file's name says that each of its lines is a JSON object with a document.
bool has_json_lines(const std::string& path);

// Encodes a text file as one document, without prefix, suffix and end; or one of JSON lines, each with its document in
// the member "text", with the post-processor's prefix and suffix and then `end`, if there is one. Adds to `counts`.
// Throws UserError, with the line's number, for a line that is none of these, and RunError if the file is cut short
// meanwhile.
void encode_file(const Tokenizer& tokenizer, const std::string& path, std::optional<uint32_t> end,
                 DocumentCounts& counts, const TakePart& take);

}  // namespace dstrain
