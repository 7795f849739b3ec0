// A directory in which a test runs the program, with a small configuration and a text.
#pragma once

#include <filesystem>
#include <string>

#include "tests/launcher/support/processes.h"

namespace dstrain {

struct RunFolder {
  RunFolder();
  ~RunFolder();  // kills what still runs there
  std::string path(const std::string& name) const { return (root / name).string(); }
  void write(const std::string& name, const std::string& text) const;
  std::string read(const std::string& name) const;
  // A word of the command line of all processes that the test starts, by which they are found.
  std::string token() const { return "--output=" + path("out"); }

  // Starts a shell that runs `words` in the directory.
  RunningProgram start(const std::string& words, const Environment& added = {}) const;
  // Returns what such a shell wrote, which must end with `status`.
  std::string output_of(const std::string& words, int status = 0,
                        const Environment& added = {}) const;
  // Starts dstrain in the directory, with c.json and the output directory `out`.
  RunningProgram train(const std::string& options, const Environment& added = {}) const;
  bool nothing_left() const;
  std::filesystem::path root;
};

// Returns the text of the only error that the program reported, or a text that says that there is none or several.
std::string only_error(const std::string& text);

int lines_of(const std::string& text);

}  // namespace dstrain
