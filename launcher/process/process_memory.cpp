#include "launcher/process/process_memory.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

struct MappedFile {
  int64_t resident = 0;
  bool executable = false;  // a part of it is mapped as code
};

}  // namespace

ProcessMemory process_memory(const std::filesystem::path& smaps) {
  std::ifstream in(smaps);
  ProcessMemory memory;
  std::map<std::string, MappedFile> files;
  MappedFile* file = nullptr;  // of the mapping whose lines are read
  int64_t resident = 0;
  bool any = false;
  for (std::string line; std::getline(in, line);) {
    const std::string_view name = std::string_view(line).substr(0, line.find(' '));
    const auto bytes = [&] { return std::atoll(line.c_str() + name.size()) * 1024; };
    if (name == "Rss:") {
      resident = bytes();
    } else if (name == "Anonymous:") {
      memory.own += bytes();
      if (file != nullptr) file->resident += resident - bytes();
    } else if (!name.ends_with(':')) {  // ADDRESSES RIGHTS OFFSET DEVICE INODE [PATH]
      any = true;
      std::istringstream words(line);
      std::string addresses, rights, offset, device, inode, path;
      words >> addresses >> rights >> offset >> device >> inode;
      std::getline(words >> std::ws, path);
      file = path.starts_with('/') ? &files[fmt::format("{} {}", device, inode)] : nullptr;
      if (file != nullptr && rights.find('x') != std::string::npos) file->executable = true;
    }
  }
  if (!any) fail_run("cannot read the memory of this process from {}", smaps.string());
  for (const auto& [name, mapped] : files)
    if (mapped.executable) memory.program += mapped.resident;
  return memory;
}

}  // namespace dstrain
