#include "launcher/ranks/rank_command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "launcher/ranks/rank_starter.h"
#include "runtime/core/cpu.h"

namespace dstrain {

namespace fs = std::filesystem;

std::string find_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string all = path == nullptr ? "" : path;
  for (size_t begin = 0; begin <= all.size();) {
    const size_t colon = std::min(all.find(':', begin), all.size());
    const std::string file = (fs::path(all.substr(begin, colon - begin)) / name).string();
    std::error_code none;
    if (fs::is_regular_file(file, none) && ::access(file.c_str(), X_OK) == 0) return file;
    begin = colon + 1;
  }
  return "";
}

std::vector<std::string> own_command(const std::vector<std::string>& words) {
  std::vector<std::string> all = {fs::read_symlink("/proc/self/exe").string()};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

RankCommand starter_command(int ranks, const std::vector<std::string>& program) {
  RankCommand command{program, {}};
  command.words.insert(command.words.begin() + 1, {kRankStarterCommand, std::to_string(ranks)});
  Environment wanted = {
      // libgomp reads these at start-up only (core/cpu.h).
      {"OMP_NUM_THREADS", std::to_string(threads_per_rank(ranks))},
      {"OMP_PROC_BIND", "false"},
  };
  if (threads_per_rank(ranks) == 1) wanted.emplace_back("OMP_WAIT_POLICY", "passive");
  for (const auto& setting : wanted)
    if (std::getenv(setting.first.c_str()) == nullptr) command.environment.push_back(setting);
  return command;
}

}  // namespace dstrain
