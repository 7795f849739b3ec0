// OutputProbe: a file in the output directory by which hosts find out whether the directory is the same for all.
// Stands on the file system. Invariant: the file, and directories that were made for it, go with the object.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dstrain {

// The file in `directory` by which a run of this name is told from others.
std::filesystem::path probe_file(const std::string& directory, const std::string& run);

class OutputProbe {
 public:
  // Makes the directory where it is missing, and the file. Throws UserError.
  OutputProbe(const std::string& directory, const std::string& run);
  OutputProbe(const OutputProbe&) = delete;
  OutputProbe& operator=(const OutputProbe&) = delete;
  ~OutputProbe();

 private:
  std::filesystem::path file_;
  std::vector<std::filesystem::path> made_;  // directories, the innermost first
};

// Whether the file of another host's probe is to be seen here. Waits a few seconds for it: a network file
// system may show it late.
bool sees_probe(const std::string& directory, const std::string& run);

}  // namespace dstrain
