#include "launcher/placement/hostfile.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "runtime/core/error.h"
#include "tests/support/skip.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

// "node1=2 node2=4", in the file's order.
std::string hosts_text(const Hostfile& file) {
  std::string text;
  for (const HostEntry& host : file.hosts)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", host.name, host.slots);
  return text;
}

std::string read(const std::string& text) {
  try {
    return hosts_text(parse_hostfile(text, "hosts"));
  } catch (const UserError& e) {
    return e.what();
  }
}

TEST_CASE("a hostfile is read as people write it") {
  const auto [text, hosts] = GENERATE(table<std::string, std::string>({
      {"worker-1 slots=4\nworker-2 slots=4\n", "worker-1=4 worker-2=4"},
      {"172.16.9.10 slots=8\n172.16.9.15 slots=8", "172.16.9.10=8 172.16.9.15=8"},
      {"# first\ngpu1.lan slots=3\n#gpu2.lan slots=3\n\n  \t\ngpu3.lan slots=2\n",
       "gpu1.lan=3 gpu3.lan=2"},
      {"  n1   slots=1  \n\tn2\tslots=2\t\n", "n1=1 n2=2"},
      {"n1 slots=1\r\nn2 slots=2\r\n", "n1=1 n2=2"},
      {"\xef\xbb\xbfn1 slots=1\n", "n1=1"},
      {"n1 slots=4 # the login node\nn2 slots=4#x\n", "n1=4 n2=4"},
      {"n1 slots=0\nn2 slots=08\n", "n1=0 n2=8"},
      {"LAPTOP-PTR322VG slots=1\n_gpu slots=2\n4 slots=65536\n",
       "LAPTOP-PTR322VG=1 _gpu=2 4=65536"},
      {"Node1 slots=1\nnode1 slots=1\n", "Node1=1 node1=1"},
  }));
  CAPTURE(text);
  CHECK(read(text) == hosts);
  CHECK(parse_hostfile(text, "hosts").warnings.empty());
}

TEST_CASE("lines are counted from one, comments included") {
  const Hostfile file = parse_hostfile("# two hosts\n\nn1 slots=1\n#\nn2 slots=1", "hosts");
  CHECK(file.hosts[0].line == 3);
  CHECK(file.hosts[1].line == 5);
}

TEST_CASE("what follows the number is ignored as DeepSpeed ignores it, with a warning") {
  const auto [text, warning] = GENERATE(table<std::string, std::string>({
      {"n1 slots=1,12 # NVIDIA", "hosts:1: ',12' after slots=1 is ignored"},
      {"n1 slots=1 max_slots=4", "hosts:1: 'max_slots=4' after slots=1 is ignored"},
      {"n1 max_slots=4 slots=1", "hosts:1: 'max_slots=4' before slots=1 is ignored"},
      {"n1\tmax-slots=4  max_slots=2 slots=1",
       "hosts:1: 'max-slots=4  max_slots=2' before slots=1 is ignored"},
      {"n1 slots=1;x", "hosts:1: ';x' after slots=1 is ignored"},
  }));
  CHECK(read(text) == "n1=1");
  CHECK(parse_hostfile(text, "hosts").warnings == std::vector<std::string>{warning});
}

TEST_CASE("a bad line is an error with file, line and what is expected") {
  const std::string letters = "holds a character other than letters, digits, '.', '-' and '_'";
  const auto [text, message] = GENERATE_REF(table<std::string, std::string>({
      {"", "hosts names no host: expected lines 'NAME slots=N'"},
      {"# only a comment\n\n", "hosts names no host: expected lines 'NAME slots=N'"},
      {"n1 slots=1\nn2\n", "hosts:2: expected 'NAME slots=N', got 'n2'"},
      {"n1 slots = 4", "hosts:1: expected 'NAME slots=N', got 'n1 slots = 4'"},
      {"n1 slots=", "hosts:1: expected 'NAME slots=N', got 'n1 slots='"},
      {"n1 slots=four", "hosts:1: expected 'NAME slots=N', got 'n1 slots=four'"},
      {"n1 slots=-1", "hosts:1: expected 'NAME slots=N', got 'n1 slots=-1'"},
      {"n1 slots=1e3",
       "hosts:1: 'slots=1e3' is not a whole number in digits, of which DeepSpeed would take 1: "
       "write slots=1000"},
      {"n1 slots=8.0 # x",
       "hosts:1: 'slots=8.0' is not a whole number in digits, of which DeepSpeed would take 8: "
       "write slots=8"},
      {"n1 slots=1_000",
       "hosts:1: 'slots=1_000' is not a whole number in digits, of which DeepSpeed would take 1: "
       "write slots=N"},
      {"n1 slots=1.5,2",
       "hosts:1: 'slots=1.5' is not a whole number in digits, of which DeepSpeed would take 1: "
       "write slots=N"},
      {"n1 slots=1abc",
       "hosts:1: 'slots=1abc' is not a whole number in digits, of which DeepSpeed would take 1: "
       "write slots=N"},
      {"n1 max_slots=4", "hosts:1: expected 'NAME slots=N', got 'n1 max_slots=4'"},
      {"n1 max_slots=4slots=1", "hosts:1: expected 'NAME slots=N', got 'n1 max_slots=4slots=1'"},
      {"n1 Slots=1", "hosts:1: expected 'NAME slots=N', got 'n1 Slots=1'"},
      {"n1:4", "hosts:1: expected 'NAME slots=N', got 'n1:4'"},
      {"this is bad slots=1", "hosts:1: expected 'NAME slots=N', got 'this is bad slots=1'"},
      {"X gpu_slots=1 gpu_type=NVIDIA cpu_slots=12",
       "hosts:1: expected 'NAME slots=N', got 'X gpu_slots=1 gpu_type=NVIDIA cpu_slots=12'"},
      {"n1 slots=65537", "hosts:1: expected at most slots=65536, got 'slots=65537'"},
      {"n1 slots=99999999999999999999",
       "hosts:1: expected at most slots=65536, got 'slots=99999999999999999999'"},
      {"worker-2 slots=8\nn slots=1\nworker-2 slots=8",
       "hosts:3: host 'worker-2' is already in line 1: give each host one line with all its "
       "slots"},
      {"-oProxyCommand=id slots=1",
       "hosts:1: the host name '-oProxyCommand=id' begins with '-', which programs read as an "
       "option"},
      {"n1;id slots=1", "hosts:1: the host name 'n1;id' " + letters},
      {"$(id) slots=1", "hosts:1: the host name '$(id)' " + letters},
      {"`id` slots=1", "hosts:1: the host name '`id`' " + letters},
      {"'n1' slots=1", "hosts:1: the host name ''n1'' " + letters},
      {"\"n1\" slots=1", "hosts:1: the host name '\"n1\"' " + letters},
      {"n1,n2 slots=1", "hosts:1: the host name 'n1,n2' " + letters},
      {"../n1 slots=1", "hosts:1: the host name '../n1' " + letters},
      {"n\xc3\xb6 slots=1", "hosts:1: the host name 'n\xc3\xb6' " + letters},
      {"n\xff slots=1", "hosts:1: the host name 'n?' " + letters},
      {"..n1 slots=1", "hosts:1: the host name '..n1' begins with '.'"},
      {"root@n1 slots=1",
       "hosts:1: the host name 'root@n1' holds '@': the user's name belongs into the ssh "
       "configuration (User), not here"},
      {"n1 slots=0x10", "hosts:1: expected 'NAME slots=N', got 'n1 slots=0x10'"},
      {"n1:2222 slots=1",
       "hosts:1: the host name 'n1:2222' holds ':': a port belongs into the ssh configuration "
       "(Port) or "
       "--ssh_port, not here"},
      {"[fe80::1] slots=8",
       "hosts:1: the host name '[fe80::1]' holds ':': give an IPv6 address a name in the ssh "
       "configuration (HostName) or /etc/hosts"},
      {"fe80::1 slots=1",
       "hosts:1: the host name 'fe80::1' holds ':': give an IPv6 address a name in the ssh "
       "configuration (HostName) or /etc/hosts"},
      {std::string("n\0 slots=1", 10),
       "hosts:1: 'n? slots=1' holds a control character: expected 'NAME slots=N' as plain text"},
      {"n1\x1b[31m slots=1",
       "hosts:1: 'n1?[31m slots=1' holds a control character: expected 'NAME slots=N' as plain "
       "text"},
      {"n1 slots=1\rn2 slots=1\n",
       "hosts:1: 'n1 slots=1?n2 slots=1' holds a control character: expected 'NAME slots=N' as "
       "plain text"},
      {std::string(254, 'n') + " slots=1",
       "hosts:1: the host name '" + std::string(60, 'n') + "...' is longer than 253 characters"},
  }));
  CAPTURE(text);
  CHECK(read(text) == message);
}

TEST_CASE("10,000 hosts and lines of a megabyte are read, or refused in one short line") {
  std::string text;
  for (int i = 0; i < 10000; ++i) text += fmt::format("node{:05} slots=4\n", i);
  CHECK(parse_hostfile(text, "hosts").hosts.size() == 10000);
  text += "node00042 slots=4\n";
  CHECK(read(text) ==
        "hosts:10001: host 'node00042' is already in line 43: give each host one line with all "
        "its slots");

  const std::string megabyte(1 << 20, 'a');
  CHECK(read("#" + megabyte + "\nn1 slots=1") == "n1=1");
  CHECK(read("n1 slots=1 #" + megabyte) == "n1=1");
  for (const std::string& line :
       {megabyte, megabyte + " slots=1", "n1 " + megabyte, "n1 slots=" + std::string(1 << 20, '9')})
    CHECK(read(line).size() < 200);
}

TEST_CASE("a hostfile is read from files and pipes; what is none is an error") {
  const TempDir dir;
  const std::string none = dir / "hosts";
  CHECK_THROWS_WITH(read_hostfile(none),
                    "cannot read the hostfile " + none + ": No such file or directory");
  CHECK_THROWS_WITH(read_hostfile(dir.path()),
                    "the hostfile " + dir.path() + " is a directory, expected a file");
  FILE* pipe = ::popen("printf 'n1 slots=2\\n'", "r");
  REQUIRE(pipe != nullptr);
  CHECK(hosts_text(read_hostfile(fmt::format("/proc/self/fd/{}", ::fileno(pipe)))) == "n1=2");
  ::pclose(pipe);
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream row(line);
  for (std::string cell; std::getline(row, cell, '\t');) cells.push_back(cell);
  return cells;
}

// Reads the hostfiles of a folder and compares them with its table manifest.tsv of what DeepSpeed reads in each.
// Returns how many there are.
int compare_folder(const std::string& folder) {
  std::ifstream table(std::filesystem::path(folder) / "manifest.tsv");
  std::string line;
  std::getline(table, line);
  const std::vector<std::string> names = cells_of(line);
  const auto column = [&names](const std::string& name) {
    return static_cast<size_t>(std::ranges::find(names, name) - names.begin());
  };
  const size_t file = column("file"), parsed = column("deepspeed_parse");
  int seen = 0;
  while (std::getline(table, line)) {
    const std::vector<std::string> cells = cells_of(line);
    REQUIRE(cells.size() > std::max(file, parsed));
    CAPTURE(cells[file]);
    ++seen;
    const std::string path = (std::filesystem::path(folder) / cells[file]).string();
    if (cells[parsed].starts_with("ok: "))
      CHECK(hosts_text(read_hostfile(path)) == cells[parsed].substr(4));
    else
      CHECK_THROWS_AS(read_hostfile(path), UserError);
  }
  return seen;
}

TEST_CASE("corpus: hostfiles are read as DeepSpeed reads them") {
  CHECK(compare_folder(DSTRAIN_SOURCE_DIR "/tests/launcher/placement/corpus") == 4);
}

// They are no part of the project.
TEST_CASE("corpus: other people's hostfiles are read as DeepSpeed reads them") {
  const std::string folder = DSTRAIN_SOURCE_DIR "/../shared/corpus/hostfiles";
  SKIP_UNLESS(std::filesystem::is_directory(folder), "there is no " + folder);
  CHECK(compare_folder(folder) > 0);
}

}  // namespace
}  // namespace dstrain
