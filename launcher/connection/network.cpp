#include "launcher/connection/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <memory>
#include <optional>

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int kFewestPorts = 64, kPortsPerRank = 2, kFirstPort = 1024;

uint32_t mask_of(int prefix) {
  return prefix <= 0 ? 0 : ~uint32_t{0} << (32 - std::min(prefix, 32));
}

std::optional<uint32_t> number_of(const std::string& address) {
  in_addr parsed{};
  if (::inet_pton(AF_INET, address.c_str(), &parsed) != 1) return std::nullopt;
  return ntohl(parsed.s_addr);
}

std::string text_of(uint32_t number) {
  const in_addr address{htonl(number)};
  std::array<char, INET_ADDRSTRLEN> text{};
  ::inet_ntop(AF_INET, &address, text.data(), text.size());
  return text.data();
}

uint32_t number_in(const sockaddr* address) {
  return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
}

// Sets the numeric address of a name. Returns 0, or the problem as gai_strerror() reads it.
int find_address(const std::string& host, std::string& address) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int problem = ::getaddrinfo(host.c_str(), nullptr, &hints, &first); problem != 0)
    return problem;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(first, ::freeaddrinfo);
  address = text_of(number_in(first->ai_addr));
  return 0;
}

}  // namespace

void from_json(const nlohmann::json& json, InterfaceAddress& address) {
  json.at("address").get_to(address.address);
  json.at("prefix").get_to(address.prefix);
}

void to_json(nlohmann::json& json, const InterfaceAddress& address) {
  json = {{"address", address.address}, {"prefix", address.prefix}};
}

std::vector<InterfaceAddress> own_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    if ((i->ifa_flags & IFF_LOOPBACK) != 0 || (i->ifa_flags & IFF_UP) == 0 ||
        (i->ifa_flags & IFF_RUNNING) == 0)
      continue;
    const int prefix = i->ifa_netmask == nullptr ? 32 : std::popcount(number_in(i->ifa_netmask));
    found.push_back({text_of(number_in(i->ifa_addr)), prefix});
  }
  ::freeifaddrs(list);
  return found;
}

std::string network_of(const InterfaceAddress& address) {
  const std::optional<uint32_t> number = number_of(address.address);
  check(number.has_value(), "'{}' as a numeric address", address.address);
  return fmt::format("{}/{}", text_of(*number & mask_of(address.prefix)), address.prefix);
}

bool is_in_network(const std::string& address, const std::string& network) {
  const size_t slash = network.find('/');
  check(slash != std::string::npos, "'{}' as a network", network);
  const std::optional<uint32_t> begin = number_of(network.substr(0, slash));
  const std::optional<uint32_t> number = number_of(address);
  int prefix = 32;
  std::from_chars(network.data() + slash + 1, network.data() + network.size(), prefix);
  return begin && number && (*number & mask_of(prefix)) == *begin;
}

std::string address_of(const std::string& option, const std::string& host) {
  if (number_of(host)) return host;
  std::string address;
  if (const int problem = find_address(host, address); problem != 0)
    fail_user(
        "{}: expected an IPv4 address of the first host, or a name that has one, got '{}' ({})",
        option, printable(host), ::gai_strerror(problem));
  return address;
}

std::optional<std::string> address_of_name(const std::string& host) {
  if (number_of(host)) return host;
  std::string address;
  if (find_address(host, address) != 0) return std::nullopt;
  return address;
}

std::optional<std::string> shared_address(const std::vector<InterfaceAddress>& own,
                                          const std::vector<std::vector<InterfaceAddress>>& others,
                                          const std::string& preferred) {
  const auto shared_by_all = [&others](const InterfaceAddress& mine) {
    const std::string network = network_of(mine);
    return std::ranges::all_of(others, [&network](const std::vector<InterfaceAddress>& theirs) {
      return std::ranges::any_of(theirs, [&network](const InterfaceAddress& address) {
        return is_in_network(address.address, network);
      });
    });
  };
  std::optional<std::string> found;
  for (const InterfaceAddress& mine : own)
    if ((!found || mine.address == preferred) && shared_by_all(mine)) found = mine.address;
  return found;
}

PortRange ports_from(int64_t first, int ranks, int taken) {
  const int usable = std::max(kFewestPorts, kPortsPerRank * ranks);
  const int count = taken + usable;
  if (first < kFirstPort)
    fail_user(
        "--master_port {}: ports below {} are the system's, and mpirun does not listen there: "
        "expected {} to {}",
        first, kFirstPort, kFirstPort, kLastPort - count + 1);
  if (first + count - 1 > kLastPort)
    fail_user("--master_port {}: the run listens at {} ports from there on, and the last one is {}",
              first, count, kLastPort);
  return {static_cast<int>(first) + taken, usable};
}

}  // namespace dstrain
