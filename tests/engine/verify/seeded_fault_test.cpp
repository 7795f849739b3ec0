#include "runtime/engine/verify/seeded_fault.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/support/models.h"

namespace dstrain {

TEST_CASE("faults: seventeen names, each known and no other") {
  CHECK(seeded_faults().size() == 17);
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
        Fault::repeated_data, Fault::flipped_bit, Fault::wrong_message, Fault::lost_residual,
        Fault::missed_replicated_sum, Fault::wrong_heads, Fault::norm_counted_twice,
        Fault::late_shift, Fault::mask_without_offset}) {
    CAPTURE(name_of(fault));
    CHECK_THROWS_AS(check_fault(fault, job), UserError);
  }
  job.ranks = 16;
  job.pipeline.stages = job.sequence_ranks = job.tensor_ranks = 2;
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

TEST_CASE("faults: those of divided layers need tensor ranks, sequence ranks, or either") {
  Job job = job_of();
  job.batch = {.train_batch = 1, .micro_batch = 1, .accumulation = 1};
  const auto refused = [&](int sequence, int tensor) {
    job.sequence_ranks = sequence;
    job.tensor_ranks = tensor;
    job.ranks = sequence * tensor;
    std::vector<std::string> names;
    for (const Fault fault :
         {Fault::missed_replicated_sum, Fault::wrong_heads, Fault::norm_counted_twice,
          Fault::late_shift, Fault::mask_without_offset}) {
      try {
        check_fault(fault, job);
      } catch (const UserError&) {
        names.emplace_back(name_of(fault));
      }
    }
    return names;
  };
  CHECK(refused(2, 1) == std::vector<std::string>{"missed_replicated_sum", "norm_counted_twice"});
  CHECK(refused(1, 2) == std::vector<std::string>{"late_shift"});
  CHECK(refused(2, 2).empty());
  job.model.set("n_head", int64_t{4});
  CHECK(refused(2, 2) == std::vector<std::string>{"wrong_heads"});
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
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adagrad}) {
    job.optimizer.kind = kind;  // without a momentum, and a sum that no update makes smaller
    job.optimizer.momentum = 0;
    CHECK_THROWS_AS(check_fault(Fault::wrong_beta, job), UserError);
  }
  CHECK_NOTHROW(check_fault(Fault::flipped_bit, job));
}

}  // namespace dstrain
