#include "launcher/connection/network.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("an address is in the network that its prefix says") {
  CHECK(network_of({"10.77.3.9", 24}) == "10.77.3.0/24");
  CHECK(network_of({"10.77.3.9", 20}) == "10.77.0.0/20");
  CHECK(network_of({"10.77.3.9", 32}) == "10.77.3.9/32");
  CHECK(network_of({"10.77.3.9", 0}) == "0.0.0.0/0");
  CHECK(is_in_network("10.77.15.255", "10.77.0.0/20"));
  CHECK_FALSE(is_in_network("10.77.16.0", "10.77.0.0/20"));
  CHECK(is_in_network("192.168.1.1", "0.0.0.0/0"));
  CHECK_FALSE(is_in_network("node1", "10.77.0.0/20"));
}

TEST_CASE("addresses of this host have a prefix and are no loopback") {
  for (const InterfaceAddress& own : own_addresses()) {
    CAPTURE(own.address);
    CHECK(is_in_network(own.address, network_of(own)));
    CHECK_FALSE(is_in_network(own.address, "127.0.0.0/8"));
  }
}

TEST_CASE("--master_addr is an address or a name that has one") {
  CHECK(address_of("--master_addr", "10.0.0.1") == "10.0.0.1");
  CHECK(address_of("--master_addr", "localhost") == "127.0.0.1");
  CHECK_THROWS_WITH(address_of("--master_addr", "no such host"),
                    Catch::StartsWith("--master_addr: expected an IPv4 address of the first host, "
                                      "or a name that has one, got 'no such host' ("));
}

TEST_CASE("a name has an address or none") {
  CHECK(address_of_name("10.0.0.1") == "10.0.0.1");
  CHECK(address_of_name("localhost") == "127.0.0.1");
  CHECK_FALSE(address_of_name("no such host").has_value());
}

TEST_CASE(
    "a host listens in a network that all hosts share, there where its name leads if it may") {
  using Addresses = std::vector<InterfaceAddress>;
  const Addresses own{{"10.0.0.1", 24}, {"192.168.7.1", 16}, {"172.17.0.1", 16}};
  const Addresses second{{"192.168.9.2", 16}, {"10.0.0.2", 24}};
  CHECK(shared_address(own, {second}, "") == "10.0.0.1");
  CHECK(shared_address(own, {second}, "192.168.7.1") == "192.168.7.1");
  CHECK(shared_address(own, {second}, "172.17.0.1") == "10.0.0.1");
  CHECK(shared_address(own, {second}, "127.0.1.1") == "10.0.0.1");
  CHECK(shared_address(own, {second, {{"192.168.3.3", 16}}}, "10.0.0.1") == "192.168.7.1");
  CHECK_FALSE(shared_address(own, {second, {{"10.5.0.3", 24}}}, "10.0.0.1").has_value());
  CHECK_FALSE(shared_address(own, {{}}, "10.0.0.1").has_value());
  CHECK_FALSE(shared_address({}, {second}, "10.0.0.1").has_value());
}

TEST_CASE("a run has 64 ports, or two for each rank of a host") {
  CHECK(ports_from(29500, 8) == PortRange{29500, 64});
  CHECK(ports_from(1024, 100) == PortRange{1024, 200});
  CHECK(ports_from(65472, 8) == PortRange{65472, 64});
  CHECK_THROWS_WITH(ports_from(65473, 8),
                    "--master_port 65473: the run listens at 64 ports from there on, and the last "
                    "one is 65535");
  CHECK_THROWS_WITH(
      ports_from(80, 8),
      "--master_port 80: ports below 1024 are the system's, and mpirun does not listen "
      "there: expected 1024 to 65472");
  CHECK(ports_from(29500, 8, 1) == PortRange{29501, 64});
  CHECK(ports_from(65471, 8, 1) == PortRange{65472, 64});
  CHECK_THROWS_WITH(ports_from(65472, 8, 1),
                    "--master_port 65472: the run listens at 65 ports from there on, and the last "
                    "one is 65535");
}

}  // namespace
}  // namespace dstrain
