#include "launcher/supervise/report_messages.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

using nlohmann::json;

TEST_CASE("a rank's report keeps everything, its times as ages") {
  RankReport r;
  r.rank = 3;
  r.pid = 4711;
  r.gone = true;
  r.state = RankState::saving;
  r.step = 12;
  r.instruction = "linear \xff";
  r.waits_for = 1;
  r.waits_in = "all_reduce b";
  r.moved_ns = 900;
  r.alive_ns = 1200;  // shortly after the moment of sending
  r.failure_kind = FailureKind::peer;
  r.failure_ns = 400;
  r.failure = "rank 1 died";
  const RankReport got = rank_report_of(json::parse(to_message(r, 1000).dump()), 51000);
  CHECK(got.rank == 3);
  CHECK(got.pid == 4711);
  CHECK(got.gone);
  CHECK(got.state == RankState::saving);
  CHECK(got.step == 12);
  CHECK(got.instruction == r.instruction);
  CHECK(got.waits_for == 1);
  CHECK(got.waits_in == r.waits_in);
  CHECK(got.moved_ns == 50900);
  CHECK(got.alive_ns == 51000);
  CHECK(got.suspended_since == 0);
  CHECK(got.failure_kind == FailureKind::peer);
  CHECK(got.failure_ns == 50400);
  CHECK(got.failure == r.failure);
}

}  // namespace
}  // namespace dstrain
