#include "launcher/fronts/fronts.h"
#include "launcher/fronts/launching.h"
#include "launcher/hosts/launch.h"
#include "runtime/core/error.h"
#include "runtime/core/log.h"

namespace dstrain {

bool on_hosts(const Placement& placement, const LaunchOptions& options) {
  if (options.front == Front::local) {
    if (placement.hosts.size() > 1)
      fail_user(
          "--launcher local starts ranks on this machine, and {} names {} hosts: use "
          "--launcher openmpi",
          placement.hostfile, placement.hosts.size());
    return false;
  }
  return placement.hosts.size() > 1 || options.force_multi || options.front == Front::openmpi ||
         !is_this_machine(placement.hosts.front().host);
}

int run_on_hosts(const Placement& placement, const TrainArguments& arguments, const RunInput& input,
                 const std::vector<std::string>& words) {
  const LaunchOptions& options = arguments.launch;
  refuse_on_hosts(options);
  log::info("launcher openmpi: {} ranks on {} hosts{}, started by ssh and mpirun",
            placement.ranks(), placement.hosts.size(),
            placement.hostfile.empty() ? "" : " of " + placement.hostfile);
  const HostsRun run(placement, arguments, input);
  if (options.dry_run) return show(run.command(to_start(words)));
  return start_with_restarts(input.job(), options, words,
                             [&](const std::vector<std::string>& all) { return run.start(all); });
}

}  // namespace dstrain
