// Text files become a token file.
#pragma once

#include <string>
#include <vector>

#include "runtime/data/documents/documents.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// What becomes of a symbolic link at an output's path: the file that it leads to is replaced, or the link.
enum class Links { followed, replaced };

// Writes the ids of the files, one after another, to the token file `output`, its FILE.documents and, where some tokens do
// not count in the loss, FILE.targets, which appear when all is written. Draws the live line. `options`: of JSON lines.
// Throws UserError for the input, RunError for the output.
DocumentCounts tokenize_files(const Tokenizer& tokenizer, const std::vector<std::string>& files,
                              const LineOptions& options, const std::string& output, Links links);

// Returns what the user should know after tokenize_files(), a sentence each.
std::vector<std::string> warnings_of(const DocumentCounts& counts);

}  // namespace dstrain
