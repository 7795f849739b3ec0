#include "launcher/hosts/start/name_wait.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <utility>

#include "launcher/placement/machine.h"
#include "launcher/process/child.h"
#include "launcher/process/program_output.h"
#include "launcher/process/program_path.h"
#include "runtime/core/log/log.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr double kNanoseconds = 1e9;  // nanoseconds
constexpr double kLooksApart = 1;     // seconds
constexpr double kRemarksApart = 30;
constexpr double kSshConfigSeconds = 5;  // the most that ssh takes to print its configuration

bool resolver_knows(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

// Returns whether ssh's configuration knows more about the name than the resolver does.
bool ssh_knows(const std::string& name) {
  const std::string ssh = find_on_path("ssh");
  if (ssh.empty()) return false;
  Child child({ssh, "-G", "--", name}, {});
  std::istringstream lines(program_output(child, kSshConfigSeconds));
  for (std::string key, value; lines >> key && std::getline(lines >> std::ws, value);) {
    if ((key == "proxyjump" || key == "proxycommand") && value != "none") return true;
    if (key == "hostname" && value != name && resolver_knows(value)) return true;
  }
  return false;
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t most = 5;
  const size_t shown = std::min(names.size(), most);
  const std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + shown, ", "));
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

}  // namespace

NameWorld name_world(const SshOptions& ssh) {
  return {.has_address =
              [relay = ssh.relay](const std::string& name) {
                return relay || is_this_machine(name) || resolver_knows(name) || ssh_knows(name);
              },
          .now = [] { return static_cast<double>(monotonic_ns()) / kNanoseconds; },
          .sleep = [](double seconds) { ::poll(nullptr, 0, static_cast<int>(seconds * 1e3)); }};
}

int64_t host_wait_seconds(const LaunchOptions& options, const Placement& placement) {
  if (options.host_wait) return *options.host_wait;
  return options.hosts.hostfile.empty() && !placement.hostfile.empty() ? kUsualHostWait : 0;
}

std::vector<std::string> wait_for_names(const std::vector<std::string>& names, int64_t seconds,
                                        const NameWorld& world) {
  std::vector<std::string> lacking = names;
  const auto leave_out_known = [&] {
    std::erase_if(lacking, [&](const std::string& name) { return world.has_address(name); });
  };
  leave_out_known();
  if (lacking.empty() || seconds == 0) return lacking;
  const double begin = world.now(), end = begin + static_cast<double>(seconds);
  double remark = begin;
  while (!lacking.empty() && world.now() < end) {
    if (world.now() >= remark) {
      log::info("{} {} no address yet: waiting up to {:.0f} s (--host_wait)", names_text(lacking),
                lacking.size() == 1 ? "has" : "have", end - world.now());
      remark = world.now() + kRemarksApart;
    }
    world.sleep(std::min(kLooksApart, end - world.now()));
    leave_out_known();
  }
  if (lacking.empty()) log::info("all hosts have addresses after {:.0f} s", world.now() - begin);
  return lacking;
}

std::string lack_of_addresses(const Placement& placement, const LaunchOptions& options,
                              const SshOptions& ssh, std::vector<std::string>& lacking) {
  const int64_t seconds = host_wait_seconds(options, placement);
  if (seconds == 0) return "";
  std::vector<std::string> names;
  for (const HostRanks& host : placement.hosts) names.push_back(host.host);
  lacking = wait_for_names(names, seconds, name_world(ssh));
  if (lacking.empty()) return "";
  return fmt::format(
      "{} of {} {} no address after {} s: are the names right, and the hosts started? --host_wait "
      "N "
      "waits longer",
      names_text(lacking), placement.hostfile, lacking.size() == 1 ? "has" : "have", seconds);
}

}  // namespace dstrain
