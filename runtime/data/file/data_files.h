// The files that dstrain.data.path names: files, and patterns for files.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// Returns the files: those of a pattern (*, ?, [...]) in the order of their bytes, in its place. A path that is there is
// no pattern. Throws UserError if no file matches a pattern. A path without a pattern may name nothing.
std::vector<std::string> data_files(const std::vector<std::string>& paths);

// Returns the first path that names nothing, a pattern that no file matches too; empty if there is none.
std::string first_missing(const std::vector<std::string>& paths);

// Returns "a.bin", or "3 files (a.bin, b.bin, c.bin)" with the names of at most five, without their folders.
std::string names_of_files(const std::vector<std::string>& files);

}  // namespace dstrain
