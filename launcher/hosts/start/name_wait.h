// NameWait: waits for hosts whose names have no address yet, as those of pods that are still being started.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/hosts/ssh.h"
#include "launcher/placement/resources.h"

namespace dstrain {

// Seconds that a run waits for the names in a hostfile that it has found, and not been given.
inline constexpr int64_t kUsualHostWait = 120;

// What waiting asks of the world; tests replace it.
struct NameWorld {
  std::function<bool(const std::string& host)> has_address;
  std::function<double()> now;  // seconds
  std::function<void(double seconds)> sleep;
};

// Returns the world as it is. A name that the resolver does not know has an address if ssh's configuration gives it one that
// the resolver knows, or another way to it (ProxyJump, ProxyCommand).
NameWorld name_world(const SshOptions& ssh);

// Returns how long a run waits for the names of its hosts: --host_wait, else 120 s for a hostfile that was found, and not at
// all for one of --hostfile.
int64_t host_wait_seconds(const LaunchOptions& options, const Placement& placement);

// Waits until all names have addresses, at most so many seconds, and logs for which it waits. Returns the names that have
// none after it.
std::vector<std::string> wait_for_names(const std::vector<std::string>& names, int64_t seconds,
                                        const NameWorld& world);

// Waits for the hosts of a run that ssh reaches. Returns what is wrong, and what to do; empty: each has an address, or
// nothing was waited for, and ssh tells.
std::string lack_of_addresses(const Placement& placement, const LaunchOptions& options,
                              const SshOptions& ssh, std::vector<std::string>& lacking);

}  // namespace dstrain
