// ReadAhead: brings the first bytes of weights from a drive while a run is prepared, so that the drive does not wait
// for the run.
#pragma once

#include <string>
#include <thread>

namespace dstrain {

class ReadAhead {
 public:
  // Begins to read a weights file, or the files of an index, into the page cache, by a thread of its own. Ends after
  // 1 GiB, so that pages are still there when they are used. Says nothing of errors: who reads the weights finds them.
  explicit ReadAhead(const std::string& path);

 private:
  std::jthread thread_;  // ends after the block at hand when this object goes
};

}  // namespace dstrain
