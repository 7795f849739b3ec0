#include "launcher/placement/core_binding.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "runtime/core/cpu.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Cores = std::vector<int>;

LaunchOptions with_list(const std::string& list) {
  LaunchOptions options;
  options.bind_core_list = list;
  return options;
}

TEST_CASE("nothing is bound unless it is asked for") {
  CHECK_FALSE(CoreBinding(LaunchOptions{}).wanted());
  CHECK(CoreBinding(with_list("0")).wanted());
}

TEST_CASE("the cores of a list are shared out in equal contiguous parts, the rest stays free") {
  const CoreBinding binding(with_list("1,3-5,7-9"));
  const Cores usable{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  CHECK(binding.cores_of(0, 3, usable) == Cores{1, 3});
  CHECK(binding.cores_of(1, 3, usable) == Cores{4, 5});
  CHECK(binding.cores_of(2, 3, usable) == Cores{7, 8});
  CHECK(binding.cores_of(0, 1, usable) == Cores{1, 3, 4, 5, 7, 8, 9});
}

TEST_CASE("a list that is none is refused with an example") {
  const auto list = GENERATE("3-1", "1,,2", "1,", ",1", "0-3,2", "1,1", "a", "1-2-3", "-1", "1 ,2",
                             "0x1", "99999999999", "0-99999999");
  CAPTURE(list);
  CHECK_THROWS_WITH(
      CoreBinding(with_list(list)),
      Catch::StartsWith("--bind_core_list: expected cores and ranges of cores separated by commas, "
                        "ascending and without overlap (0-3,8,10-11), got '"));
}

TEST_CASE("too few cores and cores that are not ours are refused") {
  CHECK_THROWS_WITH(
      CoreBinding(with_list("0-1")).cores_of(2, 3, {0, 1, 2, 3}),
      "--bind_core_list: 2 cores (0-1) for 3 ranks on a host: each rank needs one at least");
  CHECK_THROWS_WITH(CoreBinding(with_list("2-4")).cores_of(0, 1, {0, 1, 2, 3, 8}),
                    "--bind_core_list: core 4 is not one that this process may use (0-3,8)");
  LaunchOptions all;
  all.bind_cores_to_rank = true;
  CHECK_THROWS_AS(CoreBinding(all).cores_of(0, 1 << 20, usable_cores()), UserError);
}

TEST_CASE("a rank has the cores it took and a thread for each") {
  const int core = usable_cores().back();
  const pid_t child = ::fork();  // the binding stays with a process
  if (child == 0) {
    const int threads = CoreBinding(with_list(std::to_string(core))).bind(0, 1);
    ::_exit(threads == 1 && usable_cores() == Cores{core} ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
}

}  // namespace
}  // namespace dstrain
