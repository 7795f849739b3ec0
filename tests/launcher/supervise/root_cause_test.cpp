#include "launcher/supervise/root_cause.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

constexpr int64_t kS = 1'000'000'000;
constexpr int64_t kNow = 1000 * kS;
constexpr Timeouts kTimeouts{.instruction = 60 * kS, .suspended = 2 * kS};

// A run of `count` ranks that make progress.
struct World {
  explicit World(int count) : ranks(static_cast<size_t>(count)) {
    for (int r = 0; r < count; ++r) {
      RankReport& rank = at(r);
      rank.rank = r;
      rank.pid = 100 + r;
      rank.state = RankState::running;
      rank.step = 7;
      rank.instruction = "linear blocks." + std::to_string(r);
      rank.moved_ns = rank.alive_ns = kNow;
    }
  }
  RankReport& at(int r) { return ranks[static_cast<size_t>(r)]; }
  void waits(int r, int whom, int64_t since = kNow) {
    at(r).waits_for = whom;
    at(r).waits_in = "all_reduce blocks.3";
    at(r).moved_ns = since;
  }
  void vanishes(int r, int64_t when) {
    at(r).gone = true;
    at(r).alive_ns = when;
  }
  void fails(int r, FailureKind kind, int64_t when, const std::string& text = "no space") {
    at(r).failure_kind = kind;
    at(r).failure_ns = when;
    at(r).failure = text;
    at(r).state = RankState::failed;
  }
  // Ranks 0 ... first-1 are on "node1", the others on "node2". If first is 0 all are on one machine without a name.
  std::vector<HostReport> hosts() {
    if (first == 0) return {{"", "", 0, ranks}};
    const std::span<const RankReport> all = ranks;
    const auto n = static_cast<size_t>(first);
    return {{"node1", agent_lost, agent_lost_ns, all.first(n), {}, Loss::agent},
            {"node2", lost, lost_ns, all.subspan(n), starter}};
  }
  bool trouble() { return any_fault(hosts(), kTimeouts, kNow); }
  std::string report() {
    const auto root_cause = find_root_cause(hosts(), kTimeouts, kNow);
    return root_cause ? describe(*root_cause, "was killed by signal 9 (Killed)") : "nobody";
  }

  std::vector<RankReport> ranks;
  int first = 0;
  std::string lost;
  int64_t lost_ns = 0;
  std::string agent_lost;  // of node1
  int64_t agent_lost_ns = 0;
  StarterReport starter;  // of node2
};

TEST_CASE("a run that goes well, slowly or to its end has no root cause") {
  World world(3);
  CHECK_FALSE(world.trouble());
  world.at(0).moved_ns = kNow - 59 * kS;  // long, within the limit
  world.at(1).state = RankState::done;
  world.vanishes(1, kNow - 100 * kS);
  world.at(2).suspended_since = kNow - kS;
  CHECK_FALSE(world.trouble());
  CHECK(world.report() == "nobody");
}

TEST_CASE("a rank that is done and does not end is named, stopped or not") {
  World world(2);
  world.at(1).state = RankState::done;
  world.at(1).instruction = "";
  world.at(1).suspended_since = kNow - 3 * kS;
  CHECK(world.trouble());
  CHECK(world.report() == "rank 1 (pid 101) is stopped (as by SIGSTOP) at step 7");
  world.at(1).suspended_since = 0;
  CHECK_FALSE(world.trouble());
  world.at(1).moved_ns = kNow - 61 * kS;
  CHECK(world.trouble());
  CHECK(world.report() ==
        "rank 1 (pid 101) has not moved for 61 s at step 7 (dstrain.timeout_s is the limit)");
}

TEST_CASE("a rank that vanished is the cause of peer failures, even of earlier ones") {
  World world(4);
  world.vanishes(1, kNow - 1 * kS);
  for (const int r : {0, 2, 3}) world.waits(r, 1);
  world.fails(0, FailureKind::peer, kNow - 2 * kS, "rank 1 died");
  CHECK(world.trouble());
  CHECK(world.report() ==
        "rank 1 (pid 101) was killed by signal 9 (Killed) at step 7, in linear blocks.1 "
        "(ranks 0,2-3 waited for it in all_reduce blocks.3)");
}

TEST_CASE("of two primary faults the earlier is the root cause") {
  World world(3);
  world.fails(2, FailureKind::run, kNow - 3 * kS);
  world.vanishes(0, kNow - 2 * kS);
  CHECK(world.report() == "rank 2 (pid 102) failed at step 7, in linear blocks.2: no space");
}

TEST_CASE(
    "a rank that vanished comes before those that fail at the same moment in their own words") {
  World world(4);
  world.vanishes(3, kNow - 1 * kS);
  world.waits(3, 1);  // when it ended
  const auto failed = [&](int64_t before) {
    for (const int r : {0, 1, 2})
      world.fails(r, FailureKind::run, kNow - 1 * kS - before - r, "cannot read another's memory");
    return world.report();
  };
  CHECK(failed(kS / 5).starts_with("rank 3 (pid 103) was killed by signal 9"));
  CHECK(failed(-kS / 5).starts_with("rank 3 (pid 103) was killed by signal 9"));
  // mpirun kills the other ranks a second after one has failed.
  CHECK(failed(kS).starts_with("rank 2 (pid 102) failed"));
  // If several ranks vanished, the first one is named.
  world.vanishes(0, kNow - 2 * kS);
  world.at(0).failure_kind = FailureKind::none;
  world.at(0).state = RankState::running;
  world.fails(1, FailureKind::run, kNow - 2 * kS - 1);
  world.fails(2, FailureKind::run, kNow - 2 * kS - 1);
  CHECK(world.report().starts_with("rank 0 (pid 100) was killed"));
}

TEST_CASE("a rank that vanished while it waited for another one that did is not the root cause") {
  World world(3);
  world.vanishes(0, kNow - 2 * kS);
  world.vanishes(2, kNow - 1 * kS);
  world.waits(0, 2);
  CHECK(world.report() ==
        "rank 2 (pid 102) was killed by signal 9 (Killed) at step 7, in linear blocks.2 "
        "(rank 0 waited for it in all_reduce blocks.3)");
}

TEST_CASE("an error in the user's input is reported as it is") {
  World world(2);
  world.fails(1, FailureKind::user, kNow, "input.txt: no such file");
  CHECK(world.report() == "input.txt: no such file");
}

TEST_CASE("a rank that hangs is found at the end of the chain of waits") {
  World world(4);
  world.at(3).moved_ns = kNow - 70 * kS;
  world.waits(0, 1, kNow - 65 * kS);
  world.waits(1, 3, kNow - 65 * kS);
  world.waits(2, 3, kNow - 66 * kS);
  CHECK(world.trouble());
  const std::string expected =
      "rank 3 (pid 103) has not moved for 70 s at step 7, in linear blocks.3 "
      "(ranks 1-2 waited for it in all_reduce blocks.3) (dstrain.timeout_s is the limit)";
  CHECK(world.report() == expected);
  SECTION("also if a waiting rank has given up") {
    world.fails(0, FailureKind::peer, kNow, "rank 0 waited 60 s for rank 1");
    CHECK(world.report() == expected);
  }
  SECTION("and waits in a circle end") {
    world.waits(3, 0, kNow - 70 * kS);
    CHECK(world.report().find("has not moved") != std::string::npos);
  }
}

TEST_CASE("only_peer_failures() tells peer failures from other faults") {
  World world(3);
  const auto peer_failures_only = [&] {
    return only_peer_failures(world.hosts(), kTimeouts, kNow);
  };
  CHECK_FALSE(peer_failures_only());
  world.fails(0, FailureKind::peer, kNow - kS, "rank 2 could not write");
  CHECK(peer_failures_only());
  SECTION("the other rank fails") {
    world.fails(2, FailureKind::run, kNow, "no space");
  }
  SECTION("a rank waits too long") {
    world.waits(1, 2, kNow - 61 * kS);
  }
  CHECK_FALSE(peer_failures_only());
}

TEST_CASE("a rank that never starts is named after the timeout") {
  World world(2);
  world.at(1) = RankReport();
  world.at(1).rank = 1;
  world.at(1).moved_ns = kNow - 59 * kS;
  CHECK_FALSE(world.trouble());
  world.at(1).moved_ns = kNow - 61 * kS;
  world.waits(0, 1);
  CHECK(world.report() ==
        "rank 1 has not begun within 61 s (rank 0 waited for it in all_reduce blocks.3)");
}

TEST_CASE(
    "a start that stands still for a minute names the rank that is missing, and what is known of "
    "why") {
  World world(4);
  world.first = 2;
  for (int r = 0; r < 4; ++r) {
    world.at(r).state = RankState::starting;
    world.at(r).step = 0;
    world.at(r).instruction.clear();
    world.at(r).moved_ns = kNow - 30 * kS;  // it joined
  }
  world.at(3) = RankReport();
  world.at(3).rank = 3;
  world.at(3).moved_ns = kNow - 70 * kS;  // it was first expected
  const Timeouts timeouts{.instruction = 600 * kS, .suspended = 2 * kS, .start = 60 * kS};
  const auto report = [&](int64_t now) {
    const auto root_cause = find_root_cause(world.hosts(), timeouts, now);
    return root_cause ? describe(*root_cause, "") : "nobody";
  };
  CHECK(report(kNow) == "nobody");  // another one joined half a minute ago
  CHECK(report(kNow + 31 * kS) == "rank 3 on node2 has not begun within 101 s");
  world.starter.pid = 77;
  CHECK(report(kNow + 31 * kS) ==
        "rank 3 on node2 has not begun within 101 s; mpirun's daemon there (orted, pid 77) lives");
  world.starter.awaits = "10.77.0.1 port 4711";
  world.starter.awaits_since = kNow - 29 * kS;
  CHECK(report(kNow + 31 * kS) ==
        "rank 3 on node2 has not begun within 101 s; a process of the run there waits for an "
        "answer from "
        "10.77.0.1 port 4711");
  SECTION("or the rank that cannot connect") {
    world.at(3) = world.at(2);
    world.at(3).rank = 3;
    CHECK(report(kNow + 30 * kS) == "nobody");
    CHECK(report(kNow + 31 * kS) ==
          "rank 2 (pid 102 on node2) has not moved for 61 s before the first step; a process of "
          "the run there "
          "waits for an answer from 10.77.0.1 port 4711");
  }
  SECTION("and no rank that reads for long") {
    world.at(3) = world.at(2);
    world.at(3).rank = 3;
    world.starter.awaits_since = 0;
    CHECK(report(kNow + 100 * kS) == "nobody");
  }
}

TEST_CASE(
    "what starts a host's ranks is named where they end with it, and not where it ends after "
    "them") {
  World world(4);
  world.first = 2;
  world.starter.pid = 77;
  world.starter.gone = true;
  world.starter.alive_ns = kNow - 3 * kS;
  const std::string ended =
      "mpirun's daemon on node2 (orted, pid 77) ended before its ranks were done";
  CHECK(world.report() == ended);
  world.vanishes(2, kNow - 3 * kS);
  CHECK(world.report() == ended);
  world.vanishes(3, kNow - 3 * kS - 20'000'000);  // seen a look earlier
  world.fails(0, FailureKind::peer, kNow - 3 * kS, "rank 2 is gone");
  CHECK(world.report() == ended);
  SECTION("a rank was killed, and mpirun stopped the others") {
    world.vanishes(3, kNow - 4 * kS);
    CHECK(world.report().starts_with("rank 3 (pid 103 on node2) was killed"));
  }
  SECTION("its ranks had failed by themselves while it still lived, and it ended after them") {
    world = World(4);
    world.first = 2;
    world.starter.pid = 77;
    world.starter.gone = true;
    world.starter.alive_ns = kNow - 3 * kS;
    for (const int r : {2, 3})
      world.fails(r, FailureKind::user, kNow - 3 * kS - 100'000'000, "lr is negative");
    CHECK(world.report() == "node2: lr is negative");
  }
  SECTION("all were done") {
    world = World(4);
    world.first = 2;
    world.starter.pid = 77;
    world.starter.gone = true;
    for (int r = 0; r < 4; ++r) world.at(r).state = RankState::done;
    CHECK_FALSE(world.trouble());
  }
  SECTION("it is stopped") {
    world = World(4);
    world.first = 2;
    world.starter.pid = 77;
    world.starter.suspended_since = kNow - kS;
    CHECK_FALSE(world.trouble());
    world.starter.suspended_since = kNow - 2 * kS;
    CHECK(world.report() == "mpirun's daemon on node2 (orted, pid 77) is stopped (as by SIGSTOP)");
  }
}

TEST_CASE(
    "an agent that was killed is named before what its guard and mpirun then end, on any host") {
  World world(4);
  world.first = 2;
  world.agent_lost = "was killed by signal 9 (Killed)";
  world.agent_lost_ns = kNow - 2 * kS;
  world.starter.pid = 77;
  world.starter.gone = true;
  world.starter.alive_ns = kNow - 2 * kS + 10'000'000;
  world.fails(2, FailureKind::run, kNow - 2 * kS - 10'000'000, "cannot read another's memory");
  world.vanishes(3, kNow - 2 * kS - 20'000'000);
  CHECK(world.report() == "the agent of dstrain on node1 was killed by signal 9 (Killed)");
  SECTION("but not before a rank that ended a second earlier") {
    world.vanishes(3, kNow - 3 * kS);
    CHECK(world.report().starts_with("rank 3 (pid 103 on node2) was killed"));
  }
  SECTION("nor before a daemon that did") {
    world = World(4);
    world.first = 2;
    world.agent_lost = "was killed by signal 9 (Killed)";
    world.agent_lost_ns = kNow - kS;
    world.starter.pid = 77;
    world.starter.gone = true;
    world.starter.alive_ns = kNow - 2 * kS;
    CHECK(world.report().starts_with("mpirun's daemon on node2"));
  }
}

TEST_CASE("a host that was lost before a daemon on another one ended is named") {
  World world(4);
  world.first = 2;
  world.agent_lost = "no word from it for 5 s";
  world.agent_lost_ns = kNow - 2 * kS;
  world.starter.pid = 77;
  world.starter.gone = true;
  world.starter.alive_ns = kNow - kS;
  CHECK(world.report().find("node1") != std::string::npos);
}

TEST_CASE("endings are told as waitpid() tells them") {
  CHECK(ending_text(9) == "was killed by signal 9 (Killed)");
  CHECK(ending_text(3 << 8) == "ended by itself with exit status 3");
}

TEST_CASE("a stopped process is named after two seconds") {
  World world(2);
  world.at(1).suspended_since = kNow - 2 * kS;
  world.waits(0, 1);
  CHECK(world.report() ==
        "rank 1 (pid 101) is stopped (as by SIGSTOP) at step 7, in linear blocks.1 "
        "(rank 0 waited for it in all_reduce blocks.3)");
}

TEST_CASE("places: before the first step, while saving") {
  World world(1);
  world.fails(0, FailureKind::run, kNow);
  world.at(0).state = RankState::saving;
  CHECK(world.report() == "rank 0 (pid 100) failed while saving at step 7: no space");
  world.at(0).step = 0;
  CHECK(world.report() == "rank 0 (pid 100) failed before the first step: no space");
}

TEST_CASE("hosts are named if there are several, and can be the root cause") {
  World world(4);
  world.first = 2;
  for (const int r : {0, 1}) world.waits(r, 3);
  SECTION("a rank of one") {
    world.vanishes(3, kNow);
    CHECK(world.report() ==
          "rank 3 (pid 103 on node2) was killed by signal 9 (Killed) at step 7, in linear "
          "blocks.3 (ranks 0-1 waited for it in all_reduce blocks.3)");
  }
  SECTION("a silent host comes before the peer failures of other ranks") {
    world.lost = "no word from it for 5 s";
    world.lost_ns = kNow;
    world.fails(0, FailureKind::peer, kNow - kS);
    CHECK(world.report() ==
          "node2 was lost: no word from it for 5 s "
          "(ranks 0-1 waited for it in all_reduce blocks.3)");
  }
}

}  // namespace
}  // namespace dstrain
