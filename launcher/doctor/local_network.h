// The network as this machine alone can look at it: loopback, its name, its addresses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/connection/network.h"
#include "launcher/doctor/machine_line.h"

namespace dstrain {

// What this machine alone can find out about its network.
struct NetworkFacts {
  bool loopback = false;                      // a TCP connection to 127.0.0.1 is established
  std::string name;                           // of this machine
  std::optional<std::string> address{};       // of that name; nothing: none was found in a second
  std::vector<InterfaceAddress> addresses{};  // that other hosts may reach
};

NetworkFacts network_facts();

MachineLines network_lines(const NetworkFacts& facts);

}  // namespace dstrain
