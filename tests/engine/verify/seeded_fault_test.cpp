#include "runtime/engine/verify/seeded_fault.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/support/models.h"

namespace dstrain {

TEST_CASE("faults: twelve names, each known and no other") {
  CHECK(seeded_faults().size() == 12);
  for (const FaultName& known : seeded_faults()) {
    CHECK(fault_of(std::string(known.name)) == known.fault);
    CHECK(name_of(known.fault) == known.name);
  }
  CHECK_THROWS_WITH(fault_of("dropped"), Catch::Contains("expected one of dropped_gather, "));
}

TEST_CASE("faults: a job that lacks what a fault is about is refused") {
  Job job = job_of();
  job.batch = {.train_batch = 1, .micro_batch = 1, .accumulation = 1};
  job.gradient_clipping = 0;
  job.optimizer.kind = OptimizerKind::sgd;
  for (const Fault fault :
       {Fault::dropped_gather, Fault::unclipped_unit, Fault::missed_micro_batch, Fault::wrong_beta,
        Fault::repeated_data, Fault::flipped_bit, Fault::wrong_message, Fault::lost_residual}) {
    CAPTURE(name_of(fault));
    CHECK_THROWS_AS(check_fault(fault, job), UserError);
  }
  job.ranks = 4;
  job.pipeline.stages = 2;
  job.batch.accumulation = 2;
  job.zero_stage = 1;
  job.gradient_clipping = 1;
  job.optimizer.momentum = 0.9;
  job.quantize.feedback = true;
  for (const FaultName& known : seeded_faults()) {
    CAPTURE(known.name);
    CHECK_NOTHROW(check_fault(known.fault, job));
  }
}

TEST_CASE("faults: a wrong beta is another one, within its range") {
  Job job = job_of();
  CHECK(with_fault(Fault::wrong_beta, job).optimizer.beta2 == Approx(0.998));
  job.optimizer.beta2 = 0.1;
  CHECK(with_fault(Fault::wrong_beta, job).optimizer.beta2 == 0.5);
  job.optimizer.kind = OptimizerKind::sgd;
  job.optimizer.momentum = 0.9;
  CHECK(with_fault(Fault::wrong_beta, job).optimizer.momentum == Approx(0.8));
  CHECK(with_fault(Fault::flipped_bit, job) == job);
}

}  // namespace dstrain
