// TokenSums: the checksums of a token file and of the files beside it, which FILE.sums holds (docs/formats.md). A token
// file without FILE.sums is read unchecked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/data/file/file_sums.h"

namespace dstrain {

struct TokenSums {
  int64_t ids = 0;  // the largest id of the file + 1
  FileSums tokens, documents;
  std::optional<FileSums> targets;  // absent: there is no FILE.targets
  bool operator==(const TokenSums&) const = default;
};

// Returns the path of the checksums of a token file.
std::string sums_path(const std::string& token_file);

// Returns the checksums of the token file FILE, FILE.documents and FILE.targets as they are now. `ids`: the largest id + 1.
// Throws UserError if one of the first two is missing or empty, and RunError if one is cut short meanwhile.
TokenSums sums_of_token_file(const std::string& token_file, int64_t ids);

// The checksums as text, and back. parse_sums() returns nothing for any other text.
std::string sums_text(const TokenSums& sums);
std::optional<TokenSums> parse_sums(std::string_view text);

// Returns what FILE.sums beside a token file says; nothing if it is not there. Throws UserError if it cannot be read or is
// no such file.
std::optional<TokenSums> sums_beside(const std::string& token_file);

}  // namespace dstrain
