#include "runtime/comm/shared/shared_comm.h"

#include <array>
#include <catch2/catch.hpp>
#include <vector>

#include "tests/comm/board_ranks.h"

namespace dstrain {
namespace {

TEST_CASE("ranks that meet on a board share memory and add in it") {
  constexpr int kRanks = 3;
  const RankBoard board = board_of(kRanks);
  std::array<float, kRanks> sums{};
  const auto errors = run_ranks(kRanks, [&](int rank) {
    auto ranks = std::make_unique<BoardRendezvous>(board, rank, 60);
    Peers peers(*ranks, 0);
    std::string why;
    auto group = SharedGroup::open(*ranks, peers, SharedGroup::kBounceBytes, why);
    if (!group) throw PeerError(why);
    SharedComm comm(std::move(ranks), std::move(peers), std::move(group), {});
    std::vector<float> values(1000, static_cast<float>(rank + 1));
    comm.all_reduce({values.data(), {1000}, DType::f32}).wait();
    sums[static_cast<size_t>(rank)] = values.back();
    comm.finish();
  });
  for (const std::string& error : errors) CHECK(error.empty());
  for (const float sum : sums) CHECK(sum == 6.0f);
}

}  // namespace
}  // namespace dstrain
