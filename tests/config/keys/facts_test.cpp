#include "runtime/config/keys/table/facts.h"

#include <catch2/catch.hpp>

#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("verdicts: choices in any case are judged alike") {
  check_all({
      {R"("dstrain": {"model": {"type": "Benchmark"}, "loss_chunks": 8})", "dstrain.loss_chunks",
       "no_effect: the benchmark model has no vocabulary"},
      {zero(R"("offload_optimizer": {"device": "CPU"})"),
       "zero_optimization.offload_optimizer.device",
       "honoured: master weights and optimizer state are in the host's memory"},
      {zero(R"("offload_optimizer": {"device": "None"})"),
       "zero_optimization.offload_optimizer.device", "no_effect: offload is off"},
      {R"("dstrain": {"offload": {"activations": "CPU"}})", "dstrain.offload.activations",
       "honoured: activations wait in the host's memory"},
  });
}
