// A made-up machine: files below a temporary directory that stand for those of /proc, /sys and /dev.
#pragma once

#include <filesystem>
#include <string>

#include "launcher/doctor/machine_line.h"
#include "tests/support/temp_dir.h"

namespace dstrain {

struct MadeUpMachine {
  void file(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(dir / path).parent_path());
    dir.write(path, text);
  }
  std::filesystem::path root() const { return dir.path(); }
  TempDir dir;
};

// Returns the first line of the subject that has this verdict; an empty one if there is none.
inline MachineLine line_with(const MachineLines& lines, const std::string& subject, Health health) {
  for (const MachineLine& line : lines)
    if (line.subject == subject && line.health == health) return line;
  return {};
}

}  // namespace dstrain
