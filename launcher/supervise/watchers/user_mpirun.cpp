#include "launcher/supervise/watchers/user_mpirun.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>

#include "launcher/placement/machine.h"
#include "launcher/process/process_state.h"

namespace dstrain {
namespace {

constexpr std::array<std::string_view, 4> kMpirun{"mpirun", "mpiexec", "orterun", "prterun"};
constexpr std::array<std::string_view, 2> kDaemons{"orted", "prted"};

}  // namespace

std::string mpirun_advice(pid_t rank) {
  const pid_t starter = process_state(rank).parent;
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/comm", starter)), name);
  constexpr std::string_view why = "; the ranks end, but mpirun may wait for that host for ever";
  if (std::ranges::find(kMpirun, name) != kMpirun.end())
    return fmt::format("{}: `kill -KILL {}` on {} ends it", why, starter, host_name());
  if (std::ranges::find(kDaemons, name) != kDaemons.end())
    return fmt::format("{}: `kill -KILL` of its process, on the host of the command, ends it", why);
  return "";
}

}  // namespace dstrain
