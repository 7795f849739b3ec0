// The network between hosts. --master_addr names an address of the first host, and the run then stays in the network
// of that address. --master_port names the first of the TCP ports at which the run listens. IPv4 only, as Open MPI's
// transport is used here.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dstrain {

// An address of an interface and the length of its network's prefix, for example 10.77.0.1 and 24.
struct InterfaceAddress {
  std::string address;
  int prefix = 32;
  bool operator==(const InterfaceAddress&) const = default;
};
void from_json(const nlohmann::json& json, InterfaceAddress& address);
void to_json(nlohmann::json& json, const InterfaceAddress& address);

// Returns the addresses of this host that other hosts may reach: those of interfaces that are up and connected,
// without loopback.
std::vector<InterfaceAddress> own_addresses();

// Returns the network of an address: "10.77.0.0/24".
std::string network_of(const InterfaceAddress& address);

// Returns whether a numeric address is in `network`.
bool is_in_network(const std::string& address, const std::string& network);

// Returns the numeric address of `host`, a name or an address. Throws UserError, which names `option`, if it has none.
std::string address_of(const std::string& option, const std::string& host);

// Returns the numeric address of a host's name; nothing if it has none.
std::optional<std::string> address_of_name(const std::string& host);

// Returns the address of `own`, those of this host, at which it should listen for other hosts, given the addresses of
// each: one in a network in which every other host has an address too. Where several are, returns `preferred` if it is
// one of them, else the first; nothing if none is. Pure.
std::optional<std::string> shared_address(const std::vector<InterfaceAddress>& own,
                                          const std::vector<std::vector<InterfaceAddress>>& others,
                                          const std::string& preferred);

// The last TCP port.
inline constexpr int kLastPort = 65535;

// `count` TCP ports from `first` on.
struct PortRange {
  int first = 0;
  int count = 0;
  bool operator==(const PortRange&) const = default;
};

// Returns the ports of a run from `first` on: mpirun listens at the first, each rank at one of the others. `ranks` is
// the largest number of ranks on one host. The first `taken` ports are left out, because the run uses them otherwise.
// Throws UserError if there are too few ports, or the system reserves them.
PortRange ports_from(int64_t first, int ranks, int taken = 0);

}  // namespace dstrain
