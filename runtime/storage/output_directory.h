// OutputDirectory: the directory that a run writes to, as it was when the run began. Somebody may remove or rename it
// meanwhile. Its lock (output_lock.h) goes with it, and what is at its path then is not the run's.
#pragma once

#include <sys/types.h>

#include <string>

namespace dstrain {

class OutputDirectory {
 public:
  // Opens an existing directory, and keeps it open, so that the system gives its number to no other one. Throws RunError
  // if it cannot be opened.
  explicit OutputDirectory(std::string path);
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  ~OutputDirectory();

  // Returns whether the path still leads to the directory. An error of the file system does not count as another
  // directory.
  bool is_there() const;
  // Throws RunError if it does not.
  void require() const;

  // Throws the RunError of require() about a directory.
  [[noreturn]] static void fail_removed(const std::string& path);

 private:
  std::string path_;
  int directory_ = -1;
  dev_t device_ = 0;
  ino_t number_ = 0;
};

}  // namespace dstrain
