// dstrain hosts: shows which ranks a hostfile and filters place where. Starts nothing.
#include "launcher/commands/commands.h"
#include "launcher/placement/placement_text.h"
#include "launcher/placement/resources.h"
#include "launcher/process/failure.h"
#include "runtime/core/log/log.h"

namespace dstrain {

int run_hosts(const HostsArguments& arguments) {
  const Placement placement = place_ranks(arguments.hosts, local_slots());
  for (const std::string& warning : placement.warnings) log::warn("{}", warning);
  print_result(arguments.json ? placement_json(placement) : placement_text(placement));
  return 0;
}

}  // namespace dstrain
