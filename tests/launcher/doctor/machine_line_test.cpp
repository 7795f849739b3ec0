#include "launcher/doctor/machine_line.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using nlohmann::ordered_json;

MachineLines three_lines() {
  return {{.subject = "memory", .text = "1.00 GB", .values = {{"bytes", 1'000'000'000}}},
          {.subject = "ssh", .health = Health::note, .text = "not there", .remedy = "install it"},
          {.subject = "limits", .health = Health::problem, .text = "too low: raise them"}};
}

TEST_CASE("lines are a table whose remedies stand below what they are for") {
  CHECK(machine_text(three_lines()) ==
        "memory  ok       1.00 GB\n"
        "ssh     note     not there\n"
        "                 install it\n"
        "limits  problem  too low: raise them\n"
        "1 problem, 1 note\n");
  CHECK(machine_text({{.subject = "run", .health = Health::problem, .text = "a\nb"}}) ==
        "run  problem  a\n              b\n1 problem, 0 notes\n");
  CHECK(machine_text({}) == "0 problems, 0 notes\n");
  CHECK(count_of(three_lines(), Health::ok) == 1);
}

TEST_CASE("lines are JSON with the numbers of their facts") {
  const ordered_json json = machine_json(three_lines());
  REQUIRE(json.size() == 3);
  CHECK(json[0] == ordered_json{{"subject", "memory"},
                                {"health", "ok"},
                                {"text", "1.00 GB"},
                                {"remedy", ""},
                                {"values", {{"bytes", 1'000'000'000}}}});
  CHECK(json[1]["health"] == "note");
  CHECK(json[1]["remedy"] == "install it");
  CHECK(json[1]["values"].is_null());
  CHECK(json[2]["health"] == "problem");
}

TEST_CASE("what a reader throws is a problem of its subject, unless it is a bug of the program") {
  const MachineLines user = lines_or_problem("run", []() -> MachineLines { fail_user("wrong"); });
  REQUIRE(user.size() == 1);
  CHECK(user[0].subject == "run");
  CHECK(user[0].health == Health::problem);
  CHECK(user[0].text == "wrong");
  CHECK(lines_or_problem("run", []() -> MachineLines { fail_run("no file"); })[0].text ==
        "no file");
  CHECK(lines_or_problem("run", [] { return three_lines(); }).size() == 3);
  CHECK_THROWS_AS(lines_or_problem("run",
                                   []() -> MachineLines {
                                     check(false, "a bug");
                                     return {};
                                   }),
                  InternalError);
}

}  // namespace
}  // namespace dstrain
