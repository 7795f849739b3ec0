#include "launcher/hosts/checks/preflight.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "launcher/placement/machine.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Agents that are shell scripts, all started at once.
std::vector<std::unique_ptr<AgentView>> agents(int count, const std::string& script) {
  std::vector<std::unique_ptr<AgentView>> all;
  for (int i = 0; i < count; ++i)
    all.push_back(std::make_unique<AgentView>("node" + std::to_string(i + 1),
                                              std::vector<std::string>{"/bin/sh", "-c", script},
                                              std::vector<int>{i}));
  return all;
}

TEST_CASE("hosts that do not answer are named") {
  const auto hosts = agents(10, "sleep 60");
  PreflightQuestions questions;
  questions.contact_seconds = 0.5;
  const PreflightResult result = preflight(hosts, questions);
  CHECK_FALSE(result.good());
  REQUIRE(result.findings.size() == 10);
  CHECK(result.findings[9].host == "node10");
  CHECK(result.findings[9].check == "ssh");
  CHECK(result.findings[9].text.find("no answer within 0.5 s") == 0);
}

TEST_CASE("a question goes to all hosts at once") {
  // Each answers once all ten were asked, so that one that waits for another's answer would never get its own.
  std::string folder = (fs::temp_directory_path() / "dstrain_asked_XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  const auto hosts =
      agents(10, "read -r line; : >" + folder + "/$$; while [ $(ls " + folder +
                     " | wc -l) -lt 10 ]; do sleep 0.1; done; echo nonsense; exec sleep 60");
  PreflightQuestions questions;
  questions.seconds = 240;
  const PreflightResult result = preflight(hosts, questions);
  REQUIRE(result.findings.size() == 10);
  for (const Finding& finding : result.findings)
    CHECK(finding.text.find("its agent cannot be understood") != std::string::npos);
  fs::remove_all(folder);
}

TEST_CASE("the error of ssh is reported") {
  const auto hosts = agents(1, "echo 'ssh: Could not resolve hostname' >&2; exit 255");
  const PreflightResult result = preflight(hosts, {});
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].text.find("the connection to it ended (exit status 255): ssh: Could not "
                                     "resolve hostname; 'ssh node1' must work") == 0);
}

TEST_CASE("an agent that sends malformed messages is refused") {
  const auto hosts = agents(1, "echo 'Welcome to node1'; exec sleep 60");
  PreflightQuestions questions;
  questions.contact_seconds = 1;
  CHECK_FALSE(preflight(hosts, questions).good());
}

TEST_CASE("another version, another build, too little memory, a wrong clock") {
  const auto hosts = agents(
      1,
      R"(read -r line; echo '{"say": "hello", "version": "0.0.1", "program": "ff", "host": "x", )"
      R"("time": 1, "memory": 5, "memory_source": "m", "cores": 2}'; exec sleep 60)");
  PreflightQuestions questions;
  questions.check_memory = [](int ranks, int64_t bytes, const std::string&) {
    fail_user("{} ranks, {} bytes", ranks, bytes);
  };
  const PreflightResult result = preflight(hosts, questions);
  REQUIRE(result.findings.size() == 3);
  CHECK(result.findings[0].check == "version");
  CHECK(result.findings[1].check == "clock");
  CHECK_FALSE(result.findings[1].fatal);
  CHECK(result.findings[2].text == "1 ranks, 5 bytes");
  const std::string text = findings_text(result.findings);
  CHECK(text.find("\n  node1  version  dstrain 0.0.1 there") != std::string::npos);
  CHECK(hosts_verdict(result.findings, 3, 2) ==
        "not ready for 3 ranks on 2 hosts: 2 problems above must be mended first");
  CHECK(hosts_verdict({result.findings[1]}, 1, 1) == "ready for 1 rank on 1 host, with 1 warning");
  CHECK(hosts_verdict({}, 4, 2) == "ready for 4 ranks on 2 hosts");
}

TEST_CASE("hosts train on the device of the run, and too few GPUs are a warning") {
  // An agent of this version that has read its input.
  const auto findings_of = [](const std::string& input, int ranks) {
    const std::string script =
        R"sh(until read -r line; do sleep 0.02; done; )sh"
        R"sh(version=${line##*'"version":"'}; version=${version%%'"'*}; )sh"
        R"sh(echo '{"say": "hello", "version": "'$version'", "program": "ff", "host": "x", )sh"
        R"sh("time": 1, "memory": 5, "memory_source": "m", "cores": 2}'; )sh"
        R"sh(while true; do read -r line || { sleep 0.02; continue; }; )sh"
        R"sh(case "$line" in *'"input"'*) echo '{"say": "input", "files": [], )sh" +
        input +
        R"sh(}';; *'"open_mpi"'*) echo '{"say": "open_mpi", "orted": true}';; esac; done)sh";
    std::vector<std::unique_ptr<AgentView>> hosts;
    hosts.push_back(
        std::make_unique<AgentView>("a", std::vector<std::string>{"/bin/sh", "-c", script},
                                    ranks == 2 ? std::vector<int>{0, 1} : std::vector<int>{0}));
    PreflightQuestions questions;
    questions.program_checksum = "ff";
    questions.words = {"--config", "c.json"};
    questions.device = "cuda";
    std::string text;
    for (const Finding& f : preflight(hosts, questions).findings)
      if (f.check == "device") text += (f.fatal ? "fatal: " : "warning: ") + f.text;
    return text;
  };
  CHECK(findings_of(R"("device": "cuda", "gpus": 2)", 2).empty());
  CHECK(findings_of(R"("device": "cuda", "gpus": 1)", 2) ==
        "warning: 2 ranks share 1 GPU: tensors pass through the host's memory instead of NCCL");
  CHECK(findings_of(R"("device": "cpu", "gpus": 0)", 1) ==
        "fatal: it would train on 'cpu', and this machine chose 'cuda': give --device");
}

TEST_CASE("the network of --master_addr is the first host's, and every host is in it") {
  // Agents of this version with these addresses.
  const auto agent = [](const std::string& name, const std::string& addresses) {
    const std::string script =
        R"sh(until read -r line; do sleep 0.02; done; )sh"  // the pipe does not block
        R"sh(version=${line##*'"version":"'}; version=${version%%'"'*}; )sh"
        R"sh(echo '{"say": "hello", "version": "'$version'", "program": "ff", "host": "x", )sh"
        R"sh("identity": ")sh" +
        (name == "a" ? host_identity() : "elsewhere") +
        R"sh(", "time": 1, "memory": 5, "memory_source": "m", "cores": 2, "addresses": [)sh" +
        addresses +
        R"sh(]}'; while true; do read -r line || { sleep 0.02; continue; }; )sh"
        R"sh(case "$line" in *'"listen"'*) echo '{"say": "listening", "port": 1}';; )sh"
        R"sh(*'"meet"'*) echo '{"say": "met", "failed": []}';; )sh"
        R"sh(*'"open_mpi"'*) echo '{"say": "open_mpi", "orted": true}';; esac; done)sh";
    return std::make_unique<AgentView>(name, std::vector<std::string>{"/bin/sh", "-c", script},
                                       std::vector<int>{0});
  };
  const auto ask = [&](const std::string& address) {
    std::vector<std::unique_ptr<AgentView>> hosts;
    hosts.push_back(agent("a", R"({"address": "10.1.0.7", "prefix": 16}, )"
                               R"({"address": "10.2.0.7", "prefix": 24})"));
    hosts.push_back(agent("b", R"({"address": "10.1.9.8", "prefix": 16})"));
    PreflightQuestions questions;
    questions.program_checksum = "ff";
    questions.master_address = address;
    return preflight(hosts, questions);
  };
  CHECK(ask("").network.empty());
  const PreflightResult shared = ask("10.1.0.7");
  CHECK(shared.good());
  CHECK(shared.network == "10.1.0.0/16");
  const PreflightResult other = ask("10.2.0.7");
  CHECK_FALSE(other.good());
  CHECK(findings_text(other.findings)
            .find("\n  b  network  it has no address in 10.2.0.0/24, the network of --master_addr "
                  "10.2.0.7: it has 10.1.9.8/16") != std::string::npos);
  const PreflightResult none = ask("10.1.9.8");
  CHECK(findings_text(none.findings)
            .find("\n  a  network  --master_addr 10.1.9.8 is no address of this host, the first of "
                  "the run: it has 10.1.0.7/16, 10.2.0.7/24") != std::string::npos);
}

}  // namespace
}  // namespace dstrain
