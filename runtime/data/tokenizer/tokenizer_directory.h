// Tokenizers of Hugging Face directories.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

inline constexpr const char* kTokenizerFile = "tokenizer.json";

// Returns whether the directory has a tokenizer.json.
bool has_tokenizer(const std::string& directory);

// Tokens that are added to those of a directory's tokenizer.json (with_added_tokens()).
using AddedTexts = std::vector<std::string>;

// Reads tokenizer.json of a directory. Its warnings also name tokens that tokenizer_config.json alone has. Throws UserError.
std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& directory,
                                                const AddedTexts& added = {});

// Returns the largest id of the tokenizer, plus 1; 0: the directory has no tokenizer.json, or one without ids of tokens. Throws
// UserError if the file cannot be read, or tokens are to be added and there is none.
int64_t ids_of_tokenizer(const std::string& directory, const AddedTexts& added);

// Returns the text of tokenizer.json with further tokens. Throws UserError.
std::string tokenizer_text(const std::string& directory, const AddedTexts& added);

// The token that ends a document, and the file that says so.
struct EndOfText {
  uint32_t id = 0;
  std::string said_by;
};

// Returns the token that ends a document: eos_token of tokenizer_config.json or special_tokens_map.json, else
// eos_token_id of generation_config.json or config.json, else a special token with one of the usual names. Nothing if
// there is none. Throws UserError for a file that is damaged, or that names no token of `tokenizer`.
std::optional<EndOfText> end_of_text(const std::string& directory, const Tokenizer& tokenizer);

// Returns the token whose id `member` ("bos_token_id", of a list the first) of generation_config.json has, else of
// config.json; nothing if neither has it. Throws UserError for a file that is damaged, or that names no token of
// `tokenizer`.
std::optional<std::string> token_of_id(const std::string& directory, const std::string& member,
                                       const Tokenizer& tokenizer);

// Returns the ids after which a model stops writing: eos_token_id, a number or a list, of generation_config.json, else
// of config.json; none if neither has it. Throws UserError for a file that is damaged.
std::vector<uint32_t> stop_ids(const std::string& directory);

// Returns the checksum, as text, of the directory's tokenizer.json with further tokens and, with `settings`, of the files that
// end_of_text() reads. Throws UserError if a file cannot be read.
std::string tokenizer_checksum(const std::string& directory, bool settings,
                               const AddedTexts& added = {});

}  // namespace dstrain
