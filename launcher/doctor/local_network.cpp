#include "launcher/doctor/local_network.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include "launcher/connection/tcp_socket.h"
#include "launcher/hosts/checks/host_facts.h"
#include "launcher/placement/machine.h"
#include "launcher/process/child.h"
#include "launcher/process/failure.h"
#include "launcher/process/program_output.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr double kSecondsForName = 1;

bool loopback_works() {
  constexpr int64_t patience = 1'000'000'000;
  constexpr int tick_ms = 1;
  const std::optional<TcpListener> listener = TcpListener::at(0, kLoopback);
  if (!listener) return false;
  TcpConnector connector({kLoopback}, listener->port());
  for (const int64_t end = monotonic_ns() + patience; monotonic_ns() < end;
       ::poll(nullptr, 0, tick_ms))
    if (connector.connected()) return true;
  return false;
}

// Asks in a process of its own: where no server of names answers, the system's function waits for many seconds.
std::optional<std::string> address_in_time(const std::string& name) {
  Child child(
      [&name]() -> int {
        print_result(address_of_name(name).value_or(""));
        ::_exit(
            0);  // at exit() libraries end what belongs to the other process, a GPU's driver for example
      },
      {});
  const std::string address = program_output(child, kSecondsForName);
  return address.empty() ? std::nullopt : std::optional(address);
}

}  // namespace

NetworkFacts network_facts() {
  NetworkFacts facts{.loopback = loopback_works(), .name = host_name()};
  facts.address = address_in_time(facts.name);
  facts.addresses = own_addresses();
  return facts;
}

MachineLines network_lines(const NetworkFacts& facts) {
  MachineLine loopback{.subject = "loopback",
                       .text = fmt::format("TCP connections to {} work", kLoopback),
                       .values = {{"works", facts.loopback}}};
  if (!facts.loopback) {
    loopback.health = Health::note;
    loopback.text = fmt::format(
        "no TCP connection to {} is established: ranks under mpirun and srun, and watchers, need "
        "it",
        kLoopback);
    loopback.remedy = "as root: ip link set lo up; else look at the firewall";
  }
  HostFacts here;
  here.addresses = facts.addresses;
  nlohmann::ordered_json addresses = nlohmann::ordered_json::array();
  for (const InterfaceAddress& a : facts.addresses) addresses.push_back(a.address);
  MachineLine name{
      .subject = "host name",
      .text = fmt::format("{} is {}; addresses for other hosts: {}", facts.name,
                          facts.address.value_or("unknown"), addresses_text(here)),
      .values = {
          {"name", facts.name}, {"address", facts.address.value_or("")}, {"addresses", addresses}}};
  if (!facts.address) {
    name.health = Health::note;
    name.text += ": no address for the name was found within a second";
    name.remedy = fmt::format(
        "add '127.0.1.1 {}' to /etc/hosts: mpirun and runs on several hosts look the name up",
        facts.name);
  }
  return {loopback, name};
}

}  // namespace dstrain
