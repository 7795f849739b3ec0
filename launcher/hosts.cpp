// dstrain hosts: the ranks that a hostfile and filters would start where. Starts nothing.
#include "launcher/commands.h"
#include "launcher/failure.h"
#include "launcher/placement_text.h"
#include "launcher/resources.h"
#include "runtime/core/log.h"

namespace dstrain {

int run_hosts(const HostsArguments& arguments) {
  const Placement placement = place_ranks(arguments.hosts, local_slots());
  for (const std::string& warning : placement.warnings) log::warn("{}", warning);
  print_result(arguments.json ? placement_json(placement) : placement_text(placement));
  return 0;
}

}  // namespace dstrain
