// CsvMonitor: the monitor `csv_monitor`, a csv file for each tag.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/engine/metrics/monitor.h"

namespace dstrain {

// Appends a line "SAMPLES,VALUE" to the file of each value's tag, whose name is the tag with "_" for "/" and " ". A new
// file begins with the line "step,NAME", of the last part of the tag. It owns the open files.
class CsvMonitor : public Monitor {
 public:
  // Makes the directory if it is not there, and on resume removes the lines at the end of its files that are later than
  // what the run goes on from. Throws RunError if it cannot.
  CsvMonitor(std::string directory, const MonitorOptions& options);
  CsvMonitor(const CsvMonitor&) = delete;
  CsvMonitor& operator=(const CsvMonitor&) = delete;
  ~CsvMonitor() override;

 protected:
  // A file that cannot be written is left out from there on, with a warning.
  void write(int64_t samples, const std::vector<TaggedValue>& values) override;

 private:
  struct File {
    int descriptor = -1;  // -1: left out
    int64_t bytes = 0;
  };

  File& file_of(const std::string& tag);
  void append(File& file, const std::string& tag, const std::string& line);
  std::string path_of(const std::string& tag) const;

  std::string directory_;
  std::map<std::string, File> files_;  // by tag
};

}  // namespace dstrain
