#include "launcher/doctor/look_at_machine.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "launcher/placement/machine.h"
#include "tests/launcher/doctor/made_up_machine.h"

namespace dstrain {
namespace {

TEST_CASE("what cannot be read is one problem beside the lines of everything else") {
  const MadeUpMachine machine;
  const TempDir folder;
  const MachineLines lines = look_at_machine(
      {.output = folder / "out", .drives = {folder.path()}, .root = machine.root()});
  CHECK(line_with(lines, "memory", Health::problem).text ==
        "cannot read MemAvailable from " + machine.root().string() + "/proc/meminfo");
  CHECK(count_of(lines, Health::problem) == 1);
  for (const char* subject : {"program", "cores", "stack", "nvme", "loopback", "srun"}) {
    CAPTURE(subject);
    CHECK(std::ranges::count(lines, subject, &MachineLine::subject) > 0);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("drives that are not there are a problem of their own") {
  const TempDir folder;
  const MachineLines lines =
      look_at_machine({.output = folder.path(), .drives = {folder / "no/drive"}});
  const std::string text = line_with(lines, "nvme", Health::problem).text;
  CHECK(text.starts_with("nvme_path " + folder.path() + "/no/drive: neither this directory nor "));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("the report is one object") {
  const MachineLines lines{{.subject = "a", .health = Health::note, .text = "\xff"},
                           {.subject = "b", .health = Health::problem}};
  const auto report = nlohmann::ordered_json::parse(machine_report(lines, 4));
  CHECK(report["host"] == host_name());
  CHECK(report["ranks"] == 4);
  CHECK(report["problems"] == 1);
  CHECK(report["notes"] == 1);
  REQUIRE(report["lines"].size() == 2);
  CHECK(report["lines"][0]["text"] == "\xef\xbf\xbd");  // what is not UTF-8 is replaced
  CHECK(report["lines"][1]["subject"] == "b");
}

}  // namespace
}  // namespace dstrain
