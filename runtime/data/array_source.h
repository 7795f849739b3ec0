// Data of the formats `byte` and `bin`: an array of ids of one width. Token files are bare (uint16 as
// nanoGPT's, or uint32) or llm.c's (a header of 256 int32: magic, version, number of tokens; magic 20240520 with version
// 1 holds uint16, magic 20240801 with version 7 uint32).
#pragma once

#include <memory>

#include "runtime/data/file/token_width.h"
#include "runtime/data/token_source.h"

namespace dstrain {

std::unique_ptr<TokenSource> open_bytes(std::unique_ptr<DataFile> file);

// `hints`: which width the ids of a file without a header have. A file with FILE.sums beside it is compared with these
// checksums, piece by piece, when it is read. Throws UserError if the file's size does not fit its header, its checksums or
// the width of its ids.
std::unique_ptr<TokenSource> open_token_file(std::unique_ptr<DataFile> file,
                                             const TokenWidthHints& hints = {});

// Returns whether the file starts with the magic of llm.c's token files.
bool has_token_header(const DataFile& file);

// Returns whether the file holds token ids where no format is given: its name ends in .bin, or it has that header.
bool is_token_file(const DataFile& file);

}  // namespace dstrain
