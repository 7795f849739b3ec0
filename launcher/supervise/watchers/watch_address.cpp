#include "launcher/supervise/watchers/watch_address.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

constexpr const char* kMasterVariable = "MASTER_ADDR";
constexpr const char* kLoopback = "127.0.0.1";

bool is_one_of(const std::vector<InterfaceAddress>& own, const std::string& address) {
  return std::ranges::find(own, address, &InterfaceAddress::address) != own.end();
}

}  // namespace

std::string watch_address(const std::string& master_addr, const std::string& host,
                          const std::vector<std::vector<InterfaceAddress>>& others) {
  const std::vector<InterfaceAddress> own = own_addresses();
  if (!master_addr.empty()) {
    std::string address = address_of("--master_addr", master_addr);
    if (!is_one_of(own, address) && address != kLoopback)
      fail_user("--master_addr {} is no address of {}, the host of rank 0 ({})",
                printable(master_addr), printable(host), address);
    return address;
  }
  if (const char* variable = std::getenv(kMasterVariable); variable != nullptr && *variable != 0) {
    const std::optional<std::string> address = address_of_name(variable);
    if (address && is_one_of(own, *address)) return *address;
    log::warn("{} is {}, which is no address of {}, the host of rank 0: it has no effect",
              kMasterVariable, printable(variable), printable(host));
  }
  // Hosts in a test share the network of their machine.
  const bool none =
      own.empty() && std::ranges::all_of(others, [](const auto& theirs) { return theirs.empty(); });
  if (none) return kLoopback;
  const std::optional<std::string> named = address_of_name(host);
  if (auto shared = shared_address(own, others, named.value_or(""))) return *shared;
  return named && is_one_of(own, *named) ? *named : "0.0.0.0";
}

}  // namespace dstrain
