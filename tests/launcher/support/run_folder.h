// A directory in which a test runs the program: a small configuration and a text are there.
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
  // Every command line of ours has this word: the processes of this test are found by it.
  std::string token() const { return "--output=" + path("out"); }

  // Starts `words` by a shell, which enters the directory first.
  RunningProgram start(const std::string& words, const Environment& added = {}) const;
  // Starts the program that is under test there, with c.json and an output directory `out`.
  RunningProgram train(const std::string& options, const Environment& added = {}) const;
  bool nothing_left() const;
  std::filesystem::path root;
};

// The text of the one error that the program reported; says so where there is none or several.
std::string only_error(const std::string& text);

int lines_of(const std::string& text);

}  // namespace dstrain
