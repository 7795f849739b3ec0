// OutputProbe: a file in the output directory by which hosts check that they share the directory. Invariant: the file,
// and the directories that were made for it, are removed with the object.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dstrain {

// Returns the path of the probe of `run` in `directory`.
std::filesystem::path probe_file(const std::string& directory, const std::string& run);

class OutputProbe {
 public:
  // Makes the file, and the directory if it is missing. Throws UserError.
  OutputProbe(const std::string& directory, const std::string& run);
  OutputProbe(const OutputProbe&) = delete;
  OutputProbe& operator=(const OutputProbe&) = delete;
  ~OutputProbe();

 private:
  std::filesystem::path file_;
  std::vector<std::filesystem::path> made_;  // directories, innermost first
};

// Returns whether this host sees the probe of another one. Waits a few seconds for it, because a network file system
// may show it late.
bool sees_probe(const std::string& directory, const std::string& run);

}  // namespace dstrain
