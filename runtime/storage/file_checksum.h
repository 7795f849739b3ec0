// The checksum by which ranks and hosts compare whether they read the same file.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// Returns XXH3-64 in 16 hexadecimal digits of a file's size and bytes; above 256 MiB, of its size and 64 evenly
// spread pieces of 1 MiB. `what` names the file in messages ("the weights file"). Throws UserError if it cannot be read.
std::string file_checksum(const std::string& path, std::string_view what);

}  // namespace dstrain
