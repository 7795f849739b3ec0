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

#include "runtime/data/chat/conversation_encoder.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// The ids of the next part of a file, and the places among them where documents begin. `counts` may be empty: all ids
// count in the loss. It has kUndesirable for those of an answer that is not desirable.
struct EncodedPart : EncodedConversation {
  std::vector<size_t> starts;
};

// What a line of JSON files is besides its text: nothing; a pair of answers, which becomes two documents, the chosen and the
// rejected one, each behind the prompt; or an answer with a label, whether it is desirable, which becomes two documents, too
// (MismatchedAnswers).
enum class AnswerLines : uint8_t { none, pairs, rated };

// How the lines of JSON files are encoded.
struct LineOptions {
  LineOptions(std::optional<uint32_t> end = {}) { chat.end = end; }

  ChatEncoding chat;
  bool skip_invalid = false;  // leave out lines that are invalid
  AnswerLines answers = AnswerLines::none;
};

// What was met in files.
struct DocumentCounts {
  int64_t bytes = 0, documents = 0, tokens = 0;  // bytes: of the files
  int64_t text_bytes = 0;                        // of the documents that are no conversations
  int64_t conversations = 0;                     // documents of messages
  std::map<std::string, int64_t>
      ignored;                  // members of JSON lines that are not the text, and how often
  int64_t invalid = 0;          // places that are no UTF-8
  std::string first_invalid;    // "FILE: offset 12"; empty: none
  int64_t targets = 0;          // tokens that count in the loss
  int64_t without_targets = 0;  // documents without one
  int64_t skipped = 0;          // invalid lines that were left out
  std::string first_skipped;    // "FILE:12: ..."; empty: none
};

// Takes the parts, in order. `done`: bytes of the file so far.
using TakePart = std::function<void(const EncodedPart& part, int64_t done)>;

// Returns whether a file holds JSON with a document in each line, or in each element of an array: by its name, FILE.jsonl or
// FILE.ndjson, and FILE.json where it begins as an array.
bool has_json_lines(const std::string& path);

// Encodes a text file as one document, without prefix, suffix and end; or one of JSON lines, or of a JSON array, a document
// each, as ConversationEncoder does. Adds to `counts`. Throws UserError, with the line's number, for an invalid line, unless it is
// to be skipped, and RunError if the file is cut short meanwhile.
void encode_file(const Tokenizer& tokenizer, const std::string& path, const LineOptions& options,
                 DocumentCounts& counts, const TakePart& take);

}  // namespace dstrain
