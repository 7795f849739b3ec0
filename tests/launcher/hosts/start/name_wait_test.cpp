#include "launcher/hosts/start/name_wait.h"

#include <catch2/catch.hpp>
#include <map>

namespace dstrain {
namespace {

using Names = std::vector<std::string>;

// A world in which names get their addresses at a time.
struct MadeUpNames {
  std::map<std::string, double> since{};
  double time = 0;
  int looks = 0;

  NameWorld world() {
    return {.has_address =
                [this](const std::string& name) {
                  ++looks;
                  return since.contains(name) && since[name] <= time;
                },
            .now = [this] { return time; },
            .sleep = [this](double seconds) { time += seconds; }};
  }
};

TEST_CASE("names are waited for until each has an address") {
  MadeUpNames made{.since = {{"n1", 0}, {"n2", 5}, {"n3", 3}}};
  CHECK(wait_for_names({"n1", "n2", "n3"}, 120, made.world()).empty());
  CHECK(made.time == 5);
}

TEST_CASE("the wait has a limit, and names those that have none") {
  MadeUpNames made{.since = {{"n1", 0}, {"n2", 1000}}};
  CHECK(wait_for_names({"n1", "n2", "n3"}, 10, made.world()) == Names{"n2", "n3"});
  CHECK(made.time == 10);
}

TEST_CASE("nothing is waited for where all names are known, or the limit is 0") {
  MadeUpNames made{.since = {{"n1", 0}}};
  CHECK(wait_for_names({"n1"}, 120, made.world()).empty());
  CHECK(made.looks == 1);
  CHECK(wait_for_names({"n2"}, 0, made.world()) == Names{"n2"});
  CHECK(made.time == 0);
}

TEST_CASE("a hostfile that was found is waited for, one that was given only with --host_wait") {
  const Placement found{.hostfile = "/etc/mpi/hostfile", .hosts = {}, .warnings = {}};
  LaunchOptions options;
  CHECK(host_wait_seconds(options, found) == 120);
  CHECK(host_wait_seconds(options, {}) == 0);  // this machine
  options.hosts.hostfile = "hosts";
  CHECK(host_wait_seconds(options, found) == 0);
  options.host_wait = 7;
  CHECK(host_wait_seconds(options, found) == 7);
}

TEST_CASE("names of this machine and addresses have addresses, others do not") {
  const NameWorld world = name_world({});
  CHECK(world.has_address("localhost"));
  CHECK(world.has_address("127.0.0.1"));
  CHECK_FALSE(world.has_address("no-such-host.invalid"));
  const NameWorld relay = name_world({.port = {}, .relay = true});
  CHECK(relay.has_address("no-such-host.invalid"));  // what is reached without ssh needs none
}

}  // namespace
}  // namespace dstrain
