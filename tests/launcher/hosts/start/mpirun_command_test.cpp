#include "launcher/hosts/start/mpirun_command.h"

#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/config/shell_quote.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

bool has_pair(const std::vector<std::string>& words, const std::string& a, const std::string& b) {
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == a && words[i + 1] == b) return true;
  return false;
}

TEST_CASE("mpirun gets hosts, slots, settings and the environment as words of their own") {
  MpirunOptions start;
  start.run = "/tmp/dstrain-0123";
  start.exported = {{"NAME", "a value; $(x)"}, {"OMP_NUM_THREADS", "7"}};
  start.launcher_args = {"--tag-output"};
  start.directory = "/work dir";
  start.threads = 1;
  const std::vector<HostRanks> hosts = {{"node1", {0, 1}, 0}, {"node2", {3}, 2}};
  const RankCommand command = mpirun_on_hosts(hosts, start, {"/bin/dstrain", "--config", "c.json"});
  CHECK(has_pair(command.words, "--host", "node1,node1,node2"));
  CHECK(has_pair(command.words, "-np", "3"));
  CHECK(has_pair(command.words, "--map-by", "seq"));
  CHECK(has_pair(command.words, "--wdir", "/work dir"));
  CHECK(has_pair(command.words, "-x", "NAME"));
  CHECK(has_pair(command.words, "-x", "DSTRAIN_RUN"));
  CHECK(has_pair(command.words, "orte_tmpdir_base", "/tmp/dstrain-0123.mpi"));
  const std::vector<std::string> end(command.words.end() - 4, command.words.end());
  CHECK(end == std::vector<std::string>{"--tag-output", "/bin/dstrain", "--config", "c.json"});
  const auto& added = command.environment;
  const auto is = [](const char* name, const char* value) {
    return std::pair<std::string, std::string>(name, value);
  };
  CHECK(std::find(added.begin(), added.end(), is("NAME", "a value; $(x)")) != added.end());
  CHECK(std::find(added.begin(), added.end(), is("OMP_NUM_THREADS", "7")) != added.end());
  CHECK(std::find(added.begin(), added.end(), is("OMP_NUM_THREADS", "1")) == added.end());
  CHECK(command_text(command).find("NAME='a value; $(x)' ") != std::string::npos);
}

TEST_CASE("an ssh in a directory with a blank is refused, because mpirun cannot pass it on") {
  const fs::path directory = fs::path(DSTRAIN_BINARY_DIR) / "two words";
  fs::create_directories(directory);
  std::ofstream(directory / "ssh").close();
  fs::permissions(directory / "ssh", fs::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (directory.string() + ":" + path).c_str(), 1);
  CHECK_THROWS_WITH(
      mpirun_on_hosts({{"node1", {0}, 0}}, MpirunOptions(), {"x"}),
      Catch::Contains("with a blank or quote in it: '" + (directory / "ssh").string() + "'"));
  ::setenv("PATH", path.c_str(), 1);
}

TEST_CASE("a network and ports that are chosen are those of mpirun and of the ranks") {
  MpirunOptions start;
  start.run = "/tmp/dstrain-0123";
  const std::vector<HostRanks> hosts = {{"node1", {0}, 0}, {"node2", {0}, 1}};
  for (const std::string& word : mpirun_on_hosts(hosts, start, {"x"}).words) {
    CHECK(word.find("_if_include") == std::string::npos);
    CHECK(word.find("_port") == std::string::npos);
  }
  start.network = "10.77.0.0/24";
  start.ports = {29500, 64};
  const auto words = mpirun_on_hosts(hosts, start, {"x"}).words;
  CHECK(has_pair(words, "oob_tcp_if_include", "10.77.0.0/24"));
  CHECK(has_pair(words, "btl_tcp_if_include", "10.77.0.0/24"));
  CHECK(has_pair(words, "oob_tcp_static_ipv4_ports", "29500"));
  CHECK(has_pair(words, "btl_tcp_port_min_v4", "29501"));
  CHECK(has_pair(words, "btl_tcp_port_range_v4", "63"));
}

}  // namespace
}  // namespace dstrain
