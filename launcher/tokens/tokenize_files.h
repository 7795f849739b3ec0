// Text files become a token file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/data/tokenizer/documents.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// Returns the token that ends each document of JSON lines, as the directory's files say; nothing where none of `files` has
// such lines. Adds what the user should know to `warnings`. Throws UserError if no file says it.
std::optional<uint32_t> end_of_documents(const std::string& directory, const Tokenizer& tokenizer,
                                         const std::vector<std::string>& files,
                                         std::vector<std::string>& warnings);

// What becomes of a symbolic link at an output's path: the file that it leads to is replaced, or the link.
enum class Links { followed, replaced };

// Writes the ids of the files, one after another, to the token file `output` and its FILE.documents, which appear when
// all is written. Draws the progress bar. `end`: the token behind each document of JSON lines, if any. Throws UserError
// for the input, RunError for the output.
DocumentCounts tokenize_files(const Tokenizer& tokenizer, const std::vector<std::string>& files,
                              std::optional<uint32_t> end, const std::string& output, Links links);

// Returns what the user should know after tokenize_files(), a sentence each.
std::vector<std::string> warnings_of(const DocumentCounts& counts);

}  // namespace dstrain
