// CapturedWarnings: what is written to standard error while the object exists.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "tests/support/temp_dir.h"

namespace dstrain {

class CapturedWarnings {
 public:
  CapturedWarnings() : saved_(::dup(STDERR_FILENO)) {
    const int file = ::open((dir_ / "stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(file, STDERR_FILENO);
    ::close(file);
  }
  CapturedWarnings(const CapturedWarnings&) = delete;
  CapturedWarnings& operator=(const CapturedWarnings&) = delete;
  ~CapturedWarnings() {
    ::dup2(saved_, STDERR_FILENO);
    ::close(saved_);
  }

  std::string text() const { return bytes_of_file(dir_ / "stderr"); }
  long lines() const {
    const std::string all = text();
    return std::count(all.begin(), all.end(), '\n');
  }

 private:
  TempDir dir_;
  int saved_;
};

}  // namespace dstrain
