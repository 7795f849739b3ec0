#include "launcher/hosts/ssh.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "runtime/config/shell_quote.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("ssh never asks, and a host is never an option") {
  SshOptions options;
  options.port = 2222;
  const auto words = ssh_command(options, "node1", {"/opt/a b/dstrain", "host_agent"});
  CHECK(std::find(words.begin(), words.end(), "-oBatchMode=yes") != words.end());
  CHECK(std::find(words.begin(), words.end(), "-oPort=2222") != words.end());
  REQUIRE(words.size() > 3);
  CHECK(words[words.size() - 3] == "--");
  CHECK(words[words.size() - 2] == "node1");
  CHECK(words.back() == shell_command({"/opt/a b/dstrain", "host_agent"}));
  CHECK_THROWS_AS(ssh_command(options, "-oProxyCommand=x", {"x"}), InternalError);
  CHECK_THROWS_AS(ssh_command(options, "", {"x"}), InternalError);
}

TEST_CASE("without --ssh_port the port is that of ssh's configuration") {
  for (const std::string& word : ssh_command({}, "node1", {"dstrain"})) {
    CHECK(word.find("Port") == std::string::npos);
    CHECK(word != "-p");
    CHECK(word != "-F");  // ~/.ssh/config is read
  }
}

}  // namespace
}  // namespace dstrain
