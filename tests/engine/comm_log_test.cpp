#include "runtime/engine/step/comm_log.h"

#include <catch2/catch.hpp>

using namespace dstrain;

TEST_CASE("a collective's bandwidths are those of nccl-tests") {
  // 1 MB in 1 ms on 4 ranks.
  const auto of = [](OpKind op) { return bandwidth_of({op, 1'000'000, 4, 1e-3}); };
  CHECK(of(OpKind::all_gather).algorithm == Approx(1e9));
  CHECK(of(OpKind::all_gather).bus == Approx(0.75e9));
  CHECK(of(OpKind::reduce_scatter).bus == Approx(0.75e9));
  CHECK(of(OpKind::all_reduce).algorithm == Approx(2e9));
  CHECK(of(OpKind::all_reduce).bus == Approx(1.5e9));
  CHECK(of(OpKind::send).bus == Approx(1e9));
  CHECK(bandwidth_of({OpKind::send, 1'000'000, 2, 0}).bus == 0);
}

TEST_CASE("the table has a row for each operation and size") {
  CommLog log({.enabled = true});
  CHECK(log.table().empty());
  log.add({OpKind::all_reduce, 4000, 2, 1e-3});
  log.add({OpKind::all_reduce, 4000, 2, 3e-3});
  log.add({OpKind::all_reduce, 8000, 2, 1e-3});
  log.add({OpKind::all_gather, 4000, 2, 0});
  const std::string table = log.table();
  CHECK(std::count(table.begin(), table.end(), '\n') == 4);
  // Count, total, average and largest latency; 2 x 4000 bytes in 2 ms are 0.032 Gbit/s, half of that on the bus.
  CHECK(table.find("2     4.000       2.000       3.000          0.03          0.02") !=
        std::string::npos);
  CHECK(table.find("-           -           -") != std::string::npos);
}

TEST_CASE("without prof_all the named operations count, by DeepSpeed's names too") {
  const CommLog log({.enabled = true, .all_ops = false, .ops = {"all_gather_into_tensor", "send"}});
  CHECK(log.counts(OpKind::all_gather));
  CHECK(log.counts(OpKind::send));
  CHECK_FALSE(log.counts(OpKind::all_reduce));
}
