#include "tests/meta/source_tree.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <stdexcept>
#include <string_view>

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

std::vector<std::string> without_comments(const std::vector<std::string>& lines) {
  std::vector<std::string> code = lines;
  bool inside = false;  // a comment that goes over lines
  for (std::string& line : code) {
    char quote = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      const std::string_view rest = std::string_view(line).substr(i);
      if (inside) {
        inside = !rest.starts_with("*/");
        if (!inside) line[i + 1] = ' ';
        line[i] = ' ';
      } else if (quote != 0) {
        if (line[i] == '\\')
          ++i;
        else if (line[i] == quote)
          quote = 0;
      } else if (rest.starts_with("//")) {
        line.resize(i);
      } else if (rest.starts_with("/*")) {
        inside = true;
        line[i] = line[i + 1] = ' ';
        ++i;
      } else if (line[i] == '"' ||
                 (line[i] == '\'' &&
                  (i == 0 || std::isalnum(static_cast<unsigned char>(line[i - 1])) == 0))) {
        quote = line[i];
      }
    }
  }
  return code;
}

}  // namespace dstrain::meta
