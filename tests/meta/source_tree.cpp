#include "tests/meta/source_tree.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

namespace dstrain::meta {

namespace fs = std::filesystem;

fs::path source_root() {
  return DSTRAIN_SOURCE_DIR;
}

SourceFile read_source(const std::string& path) {
  std::ifstream stream(source_root() / path);
  if (!stream) throw std::runtime_error("cannot read " + path);
  SourceFile file{path, {}};
  for (std::string line; std::getline(stream, line);) file.lines.push_back(line);
  return file;
}

std::vector<SourceFile> read_sources(const std::vector<std::string>& folders,
                                     const std::vector<std::string>& endings) {
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(source_root() / folder)) {
      const std::string path = fs::relative(entry.path(), source_root()).string();
      const bool wanted = std::any_of(endings.begin(), endings.end(),
                                      [&](const std::string& e) { return path.ends_with(e); });
      if (entry.is_regular_file() && wanted) files.push_back(read_source(path));
    }
  }
  if (files.empty()) throw std::runtime_error("no source files found");
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace dstrain::meta
