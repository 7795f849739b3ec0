// The project's own files, as the tests of this folder read them. Stands on the file system and on
// DSTRAIN_SOURCE_DIR.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dstrain::meta {

// A file of the project and its lines.
struct SourceFile {
  std::string path;  // relative to the root: "runtime/core/error.h"
  std::vector<std::string> lines;
};

std::filesystem::path source_root();

// Every file below the folders (relative to the root) whose name ends with one of the endings,
// sorted by path. Throws std::runtime_error where nothing is found.
std::vector<SourceFile> read_sources(const std::vector<std::string>& folders,
                                     const std::vector<std::string>& endings);

// One file of the root; throws std::runtime_error where it cannot be read.
SourceFile read_source(const std::string& path);

// Returns the lines of a C++ source with blanks in place of comments.
std::vector<std::string> without_comments(const std::vector<std::string>& lines);

}  // namespace dstrain::meta
