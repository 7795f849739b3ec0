// The table of which hosts and slots are taken: DeepSpeed's documentation and its own tests' cases,
// then what it leaves open or does not check.
#include "launcher/placement/resources.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "launcher/placement/placement_text.h"
#include "launcher/placement/ranges_text.h"
#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

const Hostfile kTwo = parse_hostfile("worker-0 slots=4\nworker-1 slots=4\n", "hosts");
const Hostfile kUneven = parse_hostfile(
    "# four hosts\nnode1 slots=8\nnode2 slots=2\nnode3 slots=0\nnode4 slots=1\n", "uneven");

// "worker-0:0-3=0 worker-1:0,2=4": host, slots, first rank.
std::string text_of(const std::vector<HostRanks>& hosts) {
  std::string text;
  for (const HostRanks& h : hosts)
    text += fmt::format("{}{}:{}={}", text.empty() ? "" : " ", h.host, ranges_text(h.slots),
                        h.first_rank);
  return text;
}

HostOptions include(const std::string& text) {
  return {.include = text};
}
HostOptions exclude(const std::string& text) {
  return {.exclude = text};
}
HostOptions count(std::optional<int64_t> nodes, std::optional<int64_t> slots) {
  return {.nodes = nodes, .slots_each = slots};
}

struct Case {
  HostOptions options;
  std::string result;
};

std::string chosen(const Hostfile& pool, const HostOptions& options) {
  try {
    return text_of(choose_hosts(pool, options));
  } catch (const UserError& e) {
    return e.what();
  }
}

TEST_CASE("two equal hosts: what is taken, and which rank runs where") {
  const auto c = GENERATE(values<Case>({
      {{}, "worker-0:0-3=0 worker-1:0-3=4"},
      // --include
      {include("worker-0@worker-1:0,2"), "worker-0:0-3=0 worker-1:0,2=4"},
      {include("worker-1:0,3"), "worker-1:0,3=0"},
      {include("worker-0"), "worker-0:0-3=0"},
      {include("worker-1@worker-0"), "worker-0:0-3=0 worker-1:0-3=4"},
      {include("worker-0:1"), "worker-0:1=0"},
      {include("worker-0:3,1"), "worker-0:1,3=0"},
      {include("worker-0:1,1"), "worker-0:1=0"},
      {include("worker-0:1@worker-0:0,1"), "worker-0:0-1=0"},
      {include("worker-0:1@worker-0"), "worker-0:0-3=0"},
      // --exclude
      {exclude("worker-1:0"), "worker-0:0-3=0 worker-1:1-3=4"},
      {exclude("worker-1"), "worker-0:0-3=0"},
      {exclude("worker-0"), "worker-1:0-3=0"},
      {exclude("worker-0:1,2"), "worker-0:0,3=0 worker-1:0-3=2"},
      {exclude("worker-0:0,1@worker-1:3"), "worker-0:2-3=0 worker-1:0-2=2"},
      {exclude("worker-0:0,1,2,3"), "worker-1:0-3=0"},
      {exclude("worker-0:0@worker-0:0"), "worker-0:1-3=0 worker-1:0-3=3"},
      {exclude("worker-0:0,1@worker-0:2,3"), "worker-1:0-3=0"},
      // --num_nodes, --num_gpus
      {count(1, {}), "worker-0:0-3=0"},
      {count(2, {}), "worker-0:0-3=0 worker-1:0-3=4"},
      {count({}, 1), "worker-0:0=0 worker-1:0=1"},
      {count({}, 4), "worker-0:0-3=0 worker-1:0-3=4"},
      {count(1, 2), "worker-0:0-1=0"},
      // errors
      {exclude("worker-0@worker-1"), "--exclude leaves no slot of hosts"},
      {{.include = "worker-0", .exclude = "worker-1"},
       "--include and --exclude are given: give one of them"},
      {{.include = "worker-0", .nodes = 1},
       "--num_nodes and --include are given: give one of them; --include and --exclude name slots "
       "themselves"},
      {{.exclude = "worker-0", .nodes = 1, .slots_each = 1},
       "--num_nodes and --exclude are given: give one of them; --include and --exclude name slots "
       "themselves"},
      {{.include = "worker-0", .slots_each = 1},
       "--num_gpus and --include are given: give one of them; --include and --exclude name slots "
       "themselves"},
      {include("jeff"), "--include: there is no host 'jeff' in hosts"},
      {exclude("jeff"), "--exclude: there is no host 'jeff' in hosts"},
      {include("worker-2"),
       "--include: there is no host 'worker-2' in hosts; did you mean 'worker-0'?"},
      {include("worker-1:4"), "--include: host 'worker-1' has slots 0 to 3 (hosts:2), got slot 4"},
      {exclude("worker-0:9"), "--exclude: host 'worker-0' has slots 0 to 3 (hosts:1), got slot 9"},
      {include("worker-0:99999999999999999999"),
       "--include: host 'worker-0' has slots 0 to 3 (hosts:1), got slot 99999999999999999999"},
      {exclude("worker-1@worker-0:1@5"), "--exclude: there is no host '5' in hosts"},
      {include("worker-0:"),
       "--include: expected NODE[:slot,slot][@NODE...] (node1:0,2@node2), got 'worker-0:'"},
      {include("worker-0:0,"),
       "--include: expected NODE[:slot,slot][@NODE...] (node1:0,2@node2), got 'worker-0:0,'"},
      {include("worker-0:0-3"),
       "--include: expected NODE[:slot,slot][@NODE...] (node1:0,2@node2), got 'worker-0:0-3'"},
      {include("worker-0:-1"),
       "--include: expected NODE[:slot,slot][@NODE...] (node1:0,2@node2), got 'worker-0:-1'"},
      {include("worker-0:all"),
       "--include: expected NODE[:slot,slot][@NODE...] (node1:0,2@node2), got 'worker-0:all'"},
      {include("worker-0@"),
       "--include: expected NODE[:slot,slot][@NODE...] (node1:0,2@node2), got 'worker-0@'"},
      {exclude("@"), "--exclude: expected NODE[:slot,slot][@NODE...] (node1:0,2@node2), got '@'"},
      {exclude(":0"), "--exclude: expected NODE[:slot,slot][@NODE...] (node1:0,2@node2), got ':0'"},
      {include("worker-0:1:2"),
       "--include: expected NODE[:slot,slot][@NODE...] (node1:0,2@node2), got 'worker-0:1:2'"},
      {include("worker-0,worker-1"), "--include: there is no host 'worker-0,worker-1' in hosts"},
      {include(" worker-0"), "--include: there is no host ' worker-0' in hosts"},
      {include("$(id)"), "--include: there is no host '$(id)' in hosts"},
      {include("-oProxyCommand=id"), "--include: there is no host '-oProxyCommand=id' in hosts"},
      {count(3, {}), "--num_nodes 3: hosts names 2 hosts"},
      {count({}, 5),
       "--num_gpus 5: host 'worker-0' has slots 0 to 3 (hosts:1); --include can take another "
       "number of each host"},
  }));
  CAPTURE(c.options.include, c.options.exclude);
  CHECK(chosen(kTwo, c.options) == c.result);
}

TEST_CASE("uneven hosts, one of them without slots") {
  const auto c = GENERATE(values<Case>({
      {{}, "node1:0-7=0 node2:0-1=8 node4:0=10"},
      {count(3, {}), "node1:0-7=0 node2:0-1=8"},
      {count(2, 2), "node1:0-1=0 node2:0-1=2"},
      {include("node4@node2:1"), "node2:1=0 node4:0=1"},
      {exclude("node1:0,2,4,6"), "node1:1,3,5,7=0 node2:0-1=4 node4:0=6"},
      {include("node3"), "--include takes no slot of uneven"},
      {include("node3:0"), "--include: host 'node3' has no slots (uneven:4), got slot 0"},
      {include("node4:1"), "--include: host 'node4' has slot 0 only (uneven:5), got slot 1"},
      {count({}, 2),
       "--num_gpus 2: host 'node3' has no slots (uneven:4); --include can take another number of "
       "each host"},
  }));
  CAPTURE(c.options.include, c.options.exclude);
  CHECK(chosen(kUneven, c.options) == c.result);
}

TEST_CASE("a run has ranks, and not more than it can have") {
  CHECK(chosen(parse_hostfile("n slots=0", "hosts"), {}) ==
        "hosts: no host that the run takes has a slot");
  const Hostfile many = parse_hostfile("a slots=65536\nb slots=65536\n", "hosts");
  CHECK(chosen(many, {}) == "hosts: a run has at most 65536 ranks, and more slots are chosen");
  CHECK(chosen(many, count(1, {})) == "a:0-65535=0");
  CHECK(chosen(many, count({}, 32768)) == "a:0-32767=0 b:0-32767=32768");
}

TEST_CASE("10,000 hosts are placed at once") {
  std::string text, all;
  for (int i = 0; i < 10000; ++i) {
    text += fmt::format("node{} slots=4\n", i);
    all += fmt::format("{}node{}:0,3", i == 0 ? "" : "@", i);
  }
  const Hostfile pool = parse_hostfile(text, "hosts");
  const std::vector<HostRanks> hosts = choose_hosts(pool, include(all));
  REQUIRE(hosts.size() == 10000);
  CHECK(hosts.back().first_rank == 19998);
  CHECK(chosen(pool, include("node10000")) ==
        "--include: there is no host 'node10000' in hosts; did you mean 'node1000'?");
  CHECK(chosen(pool, include(std::string(1 << 20, 'a'))).size() < 150);
}

std::string placed(const HostOptions& options, const LocalSlots& local = {.all = 4}) {
  const TempDir empty;
  try {
    const Placement p = place_ranks(options, local, {empty / "hosts"});
    return fmt::format("{}[{}] {}", p.hostfile, p.ranks(), text_of(p.hosts));
  } catch (const UserError& e) {
    return e.what();
  }
}

TEST_CASE("without a hostfile this machine is called localhost") {
  const auto c = GENERATE(values<Case>({
      {{}, "[1] localhost:0=0"},
      {count({}, 2), "[2] localhost:0-1=0"},
      {count(1, 16), "[16] localhost:0-15=0"},
      {include("localhost"), "[4] localhost:0-3=0"},
      {include("localhost:1,3"), "[2] localhost:1,3=0"},
      {exclude("localhost:0"), "[3] localhost:1-3=0"},
      {count(2, {}), "--num_nodes 2: no hostfile names the other hosts: add --hostfile FILE"},
      {include("localhost:4"), "--include: host 'localhost' has slots 0 to 3, got slot 4"},
      {include("node1"),
       "--include: there is no host 'node1' in this machine, called localhost (no hostfile is "
       "given)"},
  }));
  CHECK(placed(c.options) == c.result);
}

TEST_CASE("a hostfile that is named must be there") {
  const TempDir empty;
  const std::string named = empty / "named";
  CHECK(placed({.hostfile = named}) ==
        "cannot read the hostfile " + named + ": No such file or directory");
}

TEST_CASE("a hostfile is the one that is given, else the first of the usual ones that exists") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const std::string given = (folder / fmt::format("given_{}", ::getpid())).string();
  const std::string usual = (folder / fmt::format("usual_{}", ::getpid())).string();
  std::ofstream(given) << "g slots=1,\n";
  std::ofstream(usual) << "u slots=2\n";
  CHECK(usual_hostfiles() == std::vector<std::string>{"/job/hostfile", "/etc/mpi/hostfile"});
  CHECK(text_of(place_ranks({}, {}, {usual}).hosts) == "u:0-1=0");
  CHECK(place_ranks({}, {}, {usual}).hostfile == usual);
  CHECK(place_ranks({}, {}, {usual, given}).hostfile == usual);
  CHECK(place_ranks({}, {}, {usual + "_absent", usual}).hostfile == usual);
  const Placement p = place_ranks({.hostfile = given}, {}, {usual});
  CHECK(text_of(p.hosts) == "g:0=0");
  CHECK(p.warnings == std::vector<std::string>{given + ":1: ',' after slots=1 is ignored"});
  std::filesystem::remove(given);
  std::filesystem::remove(usual);
}

TEST_CASE("a placement is printed as a table and as JSON") {
  const Placement p{"hosts", choose_hosts(kUneven, exclude("node1:1,2,3,5,6,7")), {}};
  CHECK(placement_text(p) ==
        "host   slots  ranks\n"
        "node1  0,4    0-1\n"
        "node2  0-1    2-3\n"
        "node4  0      4\n"
        "3 hosts, 5 ranks\n");
  CHECK(placement_json({"", choose_hosts(kUneven, include("node2")), {}}) ==
        R"([{"host":"node2","ranks":[0,1],"slots":[0,1]}])"
        "\n");
  CHECK(placement_text({"", choose_hosts(kUneven, include("node4")), {}}) ==
        "host   slots  ranks\n"
        "node4  0      0\n"
        "1 host, 1 rank\n");
}

}  // namespace
}  // namespace dstrain
