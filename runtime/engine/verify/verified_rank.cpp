#include "runtime/engine/verify/verified_rank.h"

#include <utility>

#include "runtime/core/error.h"
#include "runtime/engine/verify/step_recorder.h"
#include "runtime/plan/mesh.h"

namespace dstrain {

RankRecord run_verified_steps(const Job& job, const Dataset& data, RunContext& ctx,
                              const VerifiedSteps& request) {
  const int rank = ctx.comm->rank();
  std::optional<SeededFault> fault;
  std::unique_ptr<Dataset> other_data;
  Job own = job;
  own.steps = request.steps;
  if (request.fault) {
    fault.emplace(*request.fault, rank == job.ranks - 1, rank);
    other_data =
        data_with_fault(*request.fault, data, job, place_of(job, rank).rank_in(kSampleAxes));
    own = with_fault(*request.fault, own);
  }
  StepRecorder recorder(request.observed, request.steps, request.terms, fault ? &*fault : nullptr);
  ctx.observer = &recorder;
  ctx.after_step = [&recorder](const Trainer& trainer) { recorder.after_step(trainer); };
  try {
    Trainer trainer(own, other_data ? *other_data : data, ctx);
    trainer.load();
    recorder.begin(trainer);
    if (own.save_last)
      trainer.run();
    else
      while (trainer.state().step < request.steps && trainer.state().stop == 0) trainer.step();
  } catch (const RunError& e) {
    recorder.record().error = e.what();
    ctx.comm->abort(e.what());
  }
  RankRecord record = std::move(recorder.record());
  if (fault) record.fault = fault->done();
  if (rank == job.ranks - 1 && request.fault == Fault::wrong_beta)
    record.fault = "another beta of the optimizer";
  if (other_data && record.fault.empty())
    record.fault = "a rank with the samples of the one before";
  return record;
}

}  // namespace dstrain
