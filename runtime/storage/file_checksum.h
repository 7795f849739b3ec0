// The checksum by which ranks and hosts compare whether they read the same file.
#pragma once

#include <string>

namespace dstrain {

// Returns XXH3-64 in 16 hexadecimal digits of a file's size and bytes; above 256 MiB, of its size and 64 evenly
// spread pieces of 1 MiB. Throws UserError if the file cannot be read.
std::string file_checksum(const std::string& path);

}  // namespace dstrain
