// PidFile: /tmp/<pid>.deepspeed, as DeepSpeed's --save_pid writes it: the id of the launching process,
// for programs that start one. Invariant: the file is there as long as the object is.
#pragma once

#include <string>

namespace dstrain {

class PidFile {
 public:
  // Writes the file of this process into `directory`; one of an earlier process of this id is
  // replaced. Throws RunError.
  explicit PidFile(const std::string& directory = "/tmp");
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;
  ~PidFile();

 private:
  std::string path_;
};

}  // namespace dstrain
