// A directory that a run would write to: its file system, free space, and whether offload to nvme works there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/doctor/machine_line.h"
#include "runtime/config/job.h"

namespace dstrain {

// A directory as a run meets it that writes there.
struct DiskFacts {
  std::string directory;
  std::string file_system{};      // "ext4"; empty: unknown
  std::string drive{};            // "/dev/sda1, mounted at /"; empty: unknown
  std::optional<int64_t> free{};  // bytes; nothing: unknown
  bool direct = false;            // reads and writes may pass the page cache by (O_DIRECT)
  // Why nothing can be written there, and why tensors cannot be kept there as offload to nvme does, with what to do; empty:
  // it is possible.
  std::string write_problem{}, offload_problem{};
};

// Writes a file of 1 MiB without a name in a directory and reads it back, as a run that offloads to nvme with these
// settings does. A directory that is missing is made, as by that run, and removed again. Logs a warning, as such a run, where the file system has no direct I/O.
DiskFacts probe_directory(const std::string& directory, const AioConfig& config);

// The same in an output directory, which is made if it is missing, and removed again. `run`: a name from
// new_run_name(), for a file that is made and removed too.
DiskFacts probe_output(const std::string& directory, const AioConfig& config,
                       const std::string& run);

// Returns the lines about a directory. `subject`: "output", or "nvme" for one that a run offloads to, where a lack of
// asynchronous I/O is a problem.
MachineLines disk_lines(const std::string& subject, const DiskFacts& facts);

}  // namespace dstrain
