// PidFile: /tmp/<pid>.deepspeed, as DeepSpeed's --save_pid writes it. It tells the process id of the launching process
// to programs that start one. Invariant: the file exists as long as the object.
#pragma once

#include <string>

namespace dstrain {

class PidFile {
 public:
  // Writes the file of this process into `directory`. Replaces one that an earlier process with the same id left.
  // Throws RunError if the file cannot be written.
  explicit PidFile(const std::string& directory = "/tmp");
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;
  ~PidFile();

 private:
  std::string path_;
};

}  // namespace dstrain
