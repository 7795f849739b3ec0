// What the names of data files say of the data.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// Returns whether a file or a pattern is of arrays by its name, or a folder with a .npy file.
bool names_arrays(const std::string& path);

// Returns whether a path is a folder without .npy files, as no data but images are.
bool names_images(const std::string& path);

// Returns whether there are names and `is` is true of all.
bool are_all(const std::vector<std::string>& paths, bool (*is)(const std::string&));

}  // namespace dstrain
