// Data of the formats `byte` and `bin`: an array of ids of one width. Token files are nanoGPT's (uint16 without
// a header) or llm.c's (a header of 256 int32: magic, version, number of tokens; magic 20240520 with version
// 1 holds uint16, magic 20240801 with version 7 uint32).
#pragma once

#include <memory>

#include "runtime/data/token_source.h"

namespace dstrain {

std::unique_ptr<TokenSource> open_bytes(std::unique_ptr<DataFile> file);

// Throws UserError if the file's size does not fit its header, or is odd without one.
std::unique_ptr<TokenSource> open_token_file(std::unique_ptr<DataFile> file);

// Returns whether the file starts with the magic of llm.c's token files.
bool has_token_header(const DataFile& file);

// Returns whether the file holds token ids where no format is given: its name ends in .bin, or it has that header.
bool is_token_file(const DataFile& file);

}  // namespace dstrain
