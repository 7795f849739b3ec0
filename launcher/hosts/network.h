// The network between hosts, where the options choose it: --master_addr names an address of the first
// host, and the run then stays in the network of that address; --master_port names the first of the TCP
// ports at which the run listens. Stands on the system's interfaces. IPv4, as Open MPI's transport is here.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dstrain {

// An address of an interface and the length of its network's prefix: 10.77.0.1 and 24.
struct InterfaceAddress {
  std::string address;
  int prefix = 32;
  bool operator==(const InterfaceAddress&) const = default;
};
void from_json(const nlohmann::json& json, InterfaceAddress& address);
void to_json(nlohmann::json& json, const InterfaceAddress& address);

// Addresses of this host that others may reach: of interfaces that are up and have
// a cable, without loopback.
std::vector<InterfaceAddress> own_addresses();

// "10.77.0.0/24": the network that an address is in.
std::string network_of(const InterfaceAddress& address);

// Whether a numeric address is in `network`.
bool is_in_network(const std::string& address, const std::string& network);

// The numeric address of `host`, a name or an address. Throws UserError naming `option`.
std::string address_of(const std::string& option, const std::string& host);

// TCP ports from `first` on.
struct PortRange {
  int first = 0;
  int count = 0;
  bool operator==(const PortRange&) const = default;
};

// The ports of a run from `first` on, where the most ranks on one host are `ranks`: mpirun listens at the
// first, each rank at one of the others. Throws UserError where there are not so many, or they are the
// system's.
PortRange ports_from(int64_t first, int ranks);

}  // namespace dstrain
