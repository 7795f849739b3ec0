// The checksum by which ranks and hosts tell whether they read the same file. Stands on xxHash.
#pragma once

#include <string>

namespace dstrain {

// XXH3-64 in 16 hexadecimal digits: of a file's size and bytes; of one above 256 MiB, of its size and of 64
// pieces of 1 MiB, spread evenly. Throws UserError where the file cannot be read.
std::string file_checksum(const std::string& path);

}  // namespace dstrain
