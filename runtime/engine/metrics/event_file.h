// EventFile: the monitor `tensorboard`, an event file that TensorBoard reads.
#pragma once

#include <string>
#include <vector>

#include "runtime/engine/metrics/monitor.h"

namespace dstrain {

// Writes a new file events.out.tfevents.SECONDS.HOST.PID.0 of the directory; a resumed run goes on in a further one,
// which takes back the values of later steps in earlier ones. It owns the open file.
class EventFile : public Monitor {
 public:
  // Makes the directory if it is not there. Throws RunError if the file cannot be written.
  EventFile(const std::string& directory, const MonitorOptions& options);
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  ~EventFile() override;

 protected:
  // Appends a record. Once one cannot be written, a warning says so and the file ends there.
  void write(int64_t samples, const std::vector<TaggedValue>& values) override;

 private:
  bool append(const std::string& record);

  std::string path_;
  int file_ = -1;
  int64_t bytes_ = 0;  // of the complete records
  bool failed_ = false;
};

}  // namespace dstrain
