#include "launcher/hosts/checks/preflight.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include "launcher/connection/message.h"
#include "launcher/connection/secret.h"
#include "launcher/hosts/checks/output_probe.h"
#include "launcher/hosts/checks/pair_check.h"
#include "launcher/hosts/open_mpi.h"
#include "launcher/placement/machine.h"
#include "launcher/placement/process_limits.h"
#include "launcher/process/program_path.h"
#include "runtime/config/text.h"
#include "runtime/core/devices/device_choice.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using nlohmann::json;
using Hosts = std::span<const std::unique_ptr<AgentView>>;

constexpr double kClockTolerance = 2;  // seconds
constexpr const char* kLaunchingHost = ", where the command was given,";

// Returns by how much a clock is ahead that showed `time` at some moment between `asked` and `now`; 0 if it may be
// right.
double clock_ahead(double time, double asked, double now) {
  return time - std::clamp(time, asked, now);
}

class PreflightRun {
 public:
  PreflightRun(Hosts hosts, const PreflightQuestions& questions)
      : hosts_(hosts), questions_(questions) {}

  PreflightResult run() {
    first_contact();
    check_distinct_machines();
    choose_network();
    compare_open_mpi();
    compare_input();
    probe_output();
    connect_pairs();
    return std::move(result_);
  }

 private:
  void find(size_t host, const std::string& check, const std::string& text, bool fatal = true) {
    const std::string& name = hosts_[host]->name();
    result_.findings.push_back({name, check, fatal, text});
    if (fatal) failed_.insert(host);
  }

  // Returns whether the host answered, and `read` could read the answer. Adds a finding if not.
  bool answered(size_t host, const json& answer, const std::string& check,
                const std::string& advice, const std::function<void()>& read) {
    if (!answer.is_null()) {
      const std::string fault = message_fault(read);
      if (!fault.empty()) find(host, check, "its agent sent a malformed answer: " + fault);
      return fault.empty();
    }
    if (!failed_.contains(host))
      find(host, check,
           hosts_[host]->lost().empty()
               ? fmt::format("no answer within {} s; {}",
                             check == "ssh" ? questions_.contact_seconds : questions_.seconds,
                             advice)
           : check == "ssh" ? fmt::format("{}; {}", hosts_[host]->lost(), advice)
                            : "it was lost: " + hosts_[host]->lost());
    return false;
  }

  void first_contact() {
    const auto asked = static_cast<double>(std::time(nullptr));
    const auto answers = ask_all(hosts_, "hello", questions_.contact_seconds, [this](size_t) {
      return json{{"do", "hello"},
                  {"version", DSTRAIN_VERSION},
                  {"run", questions_.run},
                  {"silence_ns", questions_.silence_ns}};
    });
    const auto now = static_cast<double>(std::time(nullptr));
    for (size_t i = 0; i < hosts_.size(); ++i) {
      HostFacts facts;
      if (!answered(i, answers[i], "ssh",
                    fmt::format("'ssh {}' must work without a password, and this dstrain be "
                                "installed there at the same path",
                                hosts_[i]->name()),
                    [&] { answers[i].get_to(facts); }))
        continue;
      facts.host = hosts_[i]->name();
      facts.clock_ahead_s = clock_ahead(facts.time, asked, now);
      if (facts.version != DSTRAIN_VERSION)
        find(i, "version",
             fmt::format("dstrain {} there, {} here: install the same on all hosts", facts.version,
                         DSTRAIN_VERSION));
      else if (facts.program != questions_.program_checksum)
        find(i, "version",
             fmt::format("another build of dstrain {} there: install the same file on all hosts",
                         facts.version));
      if (std::abs(facts.clock_ahead_s) > kClockTolerance)
        find(i, "clock",
             fmt::format("its clock is {:.0f} s {} this machine's: let both follow a time server",
                         std::abs(facts.clock_ahead_s),
                         facts.clock_ahead_s > 0 ? "ahead of" : "behind"),
             false);
      if (questions_.check_memory) try {
          questions_.check_memory(static_cast<int>(hosts_[i]->ranks().size()), facts.memory_bytes,
                                  facts.memory_source);
        } catch (const UserError& e) {
          find(i, "memory", e.what());
        }
      for (const ProcessLack& lack :
           lacks_of(facts, static_cast<int64_t>(hosts_[i]->ranks().size()),
                    static_cast<int64_t>(hosts_.size())))
        find(i, lack.what, lack.text);
      result_.facts.push_back(std::move(facts));
    }
  }

  // Refuses two names of one machine, whose memory and board would otherwise be used twice.
  void check_distinct_machines() {
    std::map<std::string, std::string> name_of;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (failed_.contains(i) || facts_of(i).identity.empty()) continue;
      const auto [known, is_new] = name_of.try_emplace(facts_of(i).identity, hosts_[i]->name());
      if (!is_new)
        find(
            i, "host",
            fmt::format("it is the same machine as {}: give each machine one line of the hostfile, "
                        "with all its slots",
                        known->second));
    }
  }

  // Finds the network of --master_addr, and checks that every host has an address in it.
  void choose_network() {
    const std::string& master = questions_.master_address;
    if (master.empty() || failed_.contains(0)) return;
    for (const InterfaceAddress& own : facts_of(0).addresses)
      if (own.address == master) result_.network = network_of(own);
    if (result_.network.empty())
      return find(0, "network",
                  fmt::format("--master_addr {} is no address of this host, the first of the run: "
                              "it has {}",
                              master, addresses_text(facts_of(0))));
    for (size_t i = 1; i < hosts_.size(); ++i)
      if (!failed_.contains(i) && addresses_in_network(facts_of(i)).empty())
        find(i, "network",
             fmt::format("it has no address in {}, the network of --master_addr {}: it has {}",
                         result_.network, master, addresses_text(facts_of(i))));
  }

  // Returns the facts of a host, which must have answered.
  const HostFacts& facts_of(size_t host) const {
    const auto found =
        std::find_if(result_.facts.begin(), result_.facts.end(),
                     [&](const HostFacts& f) { return f.host == hosts_[host]->name(); });
    check(found != result_.facts.end(), "{} has not answered", hosts_[host]->name());
    return *found;
  }

  std::vector<std::string> addresses_in_network(const HostFacts& facts) const {
    std::vector<std::string> found;
    for (const InterfaceAddress& a : facts.addresses)
      if (result_.network.empty() || is_in_network(a.address, result_.network))
        found.push_back(a.address);
    return found;
  }

  void find_here(const std::string& check, const std::string& text, bool fatal = true) {
    result_.findings.push_back({host_name(), check, fatal, text});
  }

  // Returns whether this process runs on the host.
  bool is_here(size_t host) const { return facts_of(host).identity == host_identity(); }
  bool any_is_here() const {
    for (size_t i = 0; i < hosts_.size(); ++i)
      if (!failed_.contains(i) && is_here(i)) return true;
    return false;
  }

  // Compares mpirun here with its daemon on the other hosts.
  void compare_open_mpi() {
    const OpenMpi own = find_open_mpi();
    if (!own.mpirun)
      find_here("openmpi",
                "mpirun is not on PATH, and several hosts need it: install Open MPI (Debian: "
                "openmpi-bin) on all of them");
    else if (!own.other.empty())
      find_here("openmpi",
                fmt::format("the mpirun on PATH is not Open MPI's (it says '{}'): put Open "
                            "MPI's before it",
                            printable(own.other)));
    const auto answers = ask_all(hosts_, "open_mpi", questions_.seconds, [this](size_t i) {
      return failed_.contains(i) || is_here(i) ? json() : json{{"do", "open_mpi"}};
    });
    for (size_t i = 0; i < hosts_.size(); ++i) {
      OpenMpi theirs;
      if (failed_.contains(i) || is_here(i) ||
          !answered(i, answers[i], "openmpi", "mpirun there did not tell its version", [&] {
            theirs.version = answers[i].value("version", "");
            theirs.orted = answers[i].value("orted", false);
          }))
        continue;
      const std::string& version = theirs.version;
      if (!theirs.orted)
        find(i, "openmpi",
             fmt::format("mpirun's daemon orted is not on PATH there: install Open MPI{} (Debian: "
                         "openmpi-bin); 'ssh {} env' shows that PATH",
                         own.version.empty() ? "" : " " + own.version, hosts_[i]->name()));
      else if (!version.empty() && !own.version.empty() && version != own.version)
        find(i, "openmpi",
             fmt::format("Open MPI {} there, {} here: install the same on all hosts", version,
                         own.version));
    }
  }

  // Has the first host write a file into the output directory, and checks that all hosts see it.
  void probe_output() {
    if (questions_.output.empty() || failed_.contains(0)) return;
    const auto ask = [this](bool write) {
      return ask_all(hosts_, "probe", questions_.seconds, [this, write](size_t i) {
        if (failed_.contains(i) || (i == 0) != write) return json();
        return json{{"do", "probe"}, {"output", to_json_text(questions_.output)}, {"write", write}};
      });
    };
    const auto probed = [this](size_t i, const json& answer, bool& seen) {
      std::string error;
      if (!answered(i, answer, "output", fmt::format("{} cannot be looked at", questions_.output),
                    [&] {
                      error = from_json_text(answer.value("error", ""));
                      seen = answer.value("seen", false);
                    }))
        return false;
      if (!error.empty()) find(i, "output", error);
      return error.empty();
    };
    bool seen = false;
    if (!probed(0, ask(true)[0], seen)) return;
    const auto answers = ask(false);
    const std::string advice = fmt::format(
        "what {} writes into {} is not there: --output must be shared by all hosts, at the same "
        "path",
        hosts_[0]->name(), questions_.output);
    for (size_t i = 1; i < hosts_.size(); ++i)
      if (!failed_.contains(i) && probed(i, answers[i], seen) && !seen) find(i, "output", advice);
    if (!any_is_here() && !sees_probe(questions_.output, questions_.run))
      find_here("output", advice + " (here a restart looks for its checkpoint)", false);
    hosts_[0]->ask(json{{"do", "probed"}}, "");
  }

  std::string ports_text() const {
    const PortRange& ports = questions_.ports;
    return ports.first == 0
               ? "at any TCP port"
               : fmt::format("at TCP ports {}-{}", ports.first, ports.first + ports.count - 1);
  }

  void compare_input() {
    if (questions_.words.empty()) return;
    const std::string directory = working_directory();
    const auto answers = ask_all(hosts_, "input", 4 * questions_.seconds, [&](size_t i) {
      if (failed_.contains(i)) return json();
      return json{{"do", "input"},
                  {"words", questions_.words},
                  {"directory", directory},
                  {"ranks", questions_.world}};
    });
    for (size_t i = 0; i < hosts_.size(); ++i) {
      std::string error, device = questions_.device;
      int gpus = 0;
      json theirs;
      if (failed_.contains(i) ||
          !answered(i, answers[i], "input", "reading the configuration and the data took too long",
                    [&] {
                      error = from_json_text(answers[i].value("error", ""));
                      theirs = answers[i].value("files", json::array());
                      device = answers[i].value("device", device);
                      gpus = answers[i].value("gpus", 0);
                    }))
        continue;
      if (!error.empty()) {
        find(i, "input", error);
        continue;
      }
      for (const json& file : questions_.files)
        if (std::find(theirs.begin(), theirs.end(), file) == theirs.end())
          find(i, "input",
               fmt::format("{} is not the same there as here: copy it, or use a shared directory",
                           file.at("path").get<std::string>()));
      compare_device(i, device, gpus);
    }
  }

  // Compares the device that a host chose, and its GPUs, with what the run needs.
  void compare_device(size_t host, const std::string& device, int gpus) {
    const auto ranks = static_cast<int>(hosts_[host]->ranks().size());
    if (device != questions_.device)
      find(host, "device",
           fmt::format("it would train on '{}', and this machine chose '{}': give --device", device,
                       questions_.device));
    else if (is_gpu(device_named(device)) && gpus < ranks)
      find(host, "device",
           fmt::format("{} ranks share {}: tensors pass through the host's memory instead of NCCL",
                       ranks, counted(gpus, "GPU")),
           false);
  }

  // If this process runs on none of the run's hosts, returns a listener that stands for mpirun here, to which mpirun's
  // daemons on the hosts will connect. Otherwise returns nothing.
  std::optional<PairCheck> own_listener(std::vector<PeerAddress>& peers) {
    if (any_is_here()) return std::nullopt;
    HostFacts own;
    own.addresses = own_addresses();
    std::optional<PairCheck> listener;
    try {
      listener.emplace(pair_key_, questions_.ports.first);
    } catch (const RunError& e) {
      find_here("network", e.what());
      return std::nullopt;
    }
    peers.push_back({host_name() + kLaunchingHost, listener->port(), addresses_in_network(own)});
    if (peers.back().addresses.empty())
      find_here(
          "network",
          fmt::format("this machine has no address in {}, the network of --master_addr: give the "
                      "command on a host that has, or leave --master_addr out",
                      result_.network));
    return listener;
  }

  // Checks the connections between all pairs of the hosts that have passed so far, and from each of them to this
  // machine.
  void connect_pairs() {
    const auto listening = ask_all(hosts_, "listening", questions_.seconds, [this](size_t i) {
      if (failed_.contains(i)) return json();
      return json{{"do", "listen"},
                  {"key", pair_key_},
                  {"port", questions_.ports.first},
                  {"address", result_.network.empty() ? "0.0.0.0"
                                                      : addresses_in_network(facts_of(i)).front()}};
    });
    std::vector<PeerAddress> peers;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      int64_t port = 0;
      if (failed_.contains(i) ||
          !answered(i, listening[i], "network", "it cannot listen for others",
                    [&] { port = integer_member(listening[i], "port", 1, kLastPort); }))
        continue;
      peers.push_back(
          {hosts_[i]->name(), static_cast<int>(port), addresses_in_network(facts_of(i))});
    }
    std::optional<PairCheck> own = own_listener(peers);
    const auto answers = ask_all(
        hosts_, "met", questions_.seconds,
        [&](size_t i) {
          if (failed_.contains(i)) return json();
          json others = json::array();
          for (const PeerAddress& peer : peers)
            if (peer.name != hosts_[i]->name()) others.push_back(peer);
          return json{{"do", "meet"}, {"peers", others}};
        },
        [&own] {
          if (own) own->serve();
        });
    for (size_t i = 0; i < hosts_.size(); ++i) {
      std::vector<Unreached> unreached;
      if (failed_.contains(i) || !answered(i, answers[i], "network", "it did not reach the others",
                                           [&] { answers[i].at("failed").get_to(unreached); }))
        continue;
      for (const Unreached& peer : unreached)
        find(i, "network",
             fmt::format("cannot reach {} ({}): hosts must reach each other {}", peer.name,
                         peer.why, ports_text()));
    }
  }

  Hosts hosts_;
  const PreflightQuestions& questions_;
  PreflightResult result_;
  std::set<size_t> failed_;
  std::string pair_key_ = random_hex();
};

}  // namespace

bool PreflightResult::good() const {
  return std::none_of(findings.begin(), findings.end(), [](const Finding& f) { return f.fatal; });
}

PreflightResult preflight(Hosts hosts, const PreflightQuestions& questions) {
  return PreflightRun(hosts, questions).run();
}

}  // namespace dstrain
