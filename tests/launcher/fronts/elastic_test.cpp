#include "launcher/fronts/elastic.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "models/registry.h"
#include "runtime/core/error.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

const std::vector<HostRanks> kHosts = {
    {"node1", {0, 1}, 0}, {"node2", {0, 2}, 2}, {"node3", {0, 1, 2, 3}, 4}};

// A run with this batch: members of the configuration file.
struct Batch {
  explicit Batch(const std::string& members) {
    request.models = &model_registry();
    request.path = dir / "c.json";
    std::ofstream(request.path) << "{" << members
                                << R"(, "dstrain": {"model": {"type": "benchmark", "in_size": 4, )"
                                << R"("hidden_size": 4, "out_size": 4, "n_layer": 1}}})";
  }
  TempDir dir;
  ConfigRequest request;
};

TEST_CASE("hosts that remain keep their order and slots, ranks are numbered anew") {
  const auto rest = hosts_without(kHosts, {"node1"});
  REQUIRE(rest.size() == 2);
  CHECK(rest[0].host == "node2");
  CHECK(rest[0].slots == std::vector<int>{0, 2});
  CHECK(rest[0].first_rank == 0);
  CHECK(rest[1].host == "node3");
  CHECK(rest[1].first_rank == 2);
  CHECK(hosts_without(kHosts, {"node1", "node2", "node3"}).empty());
}

TEST_CASE("fewer ranks may go on where they make the same global batch") {
  const Batch batch(R"("train_batch_size": 48, "train_micro_batch_size_per_gpu": 2)");
  CHECK(reason_against_ranks(batch.request, 48, 6) == "");
  CHECK(reason_against_ranks(batch.request, 48, 4) == "");
  CHECK(reason_against_ranks(batch.request, 48, 5) != "");
  CHECK(reason_against_ranks(batch.request, 48, 0) == "no host remains");
  CHECK_NOTHROW(check_elastic(kHosts, batch.request, 48));
}

TEST_CASE("a batch that follows from the number of ranks is another training") {
  const Batch batch(R"("gradient_accumulation_steps": 2, "train_micro_batch_size_per_gpu": 2)");
  CHECK(reason_against_ranks(batch.request, 32, 4) ==
        "4 ranks would make a global batch of 16 instead of 32: give train_batch_size and "
        "train_micro_batch_size_per_gpu, and leave gradient_accumulation_steps out");
  CHECK_THROWS_WITH(check_elastic(kHosts, batch.request, 32),
                    Catch::StartsWith("--elastic: no host could be left out; without node1: "));
}

TEST_CASE("where one of the hosts can be left out the run may be elastic") {
  // Without node3 there are 4 ranks, else 6.
  const Batch batch(R"("train_batch_size": 16, "train_micro_batch_size_per_gpu": 2)");
  CHECK(reason_against_ranks(batch.request, 16, 6) != "");
  CHECK_NOTHROW(check_elastic(kHosts, batch.request, 16));
}

}  // namespace
}  // namespace dstrain
