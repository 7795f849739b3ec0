#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/job.h"
#include "runtime/core/error.h"
#include "runtime/ir/kernel.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/build_model.h"
#include "runtime/plan/chunks/chunks.h"
#include "runtime/plan/codecs/codec.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/divide.h"
#include "runtime/plan/finish_plan.h"
#include "runtime/plan/parallel/parallel.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/placement/place.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/proof/verify.h"
#include "runtime/plan/proof/verify_ranks.h"
#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/waits.h"

namespace dstrain {
namespace {

// What all ranks of a job begin with.
struct WholeModel {
  Program train;
  Program validate;
  std::vector<int64_t> first_sublayers;  // of the parts of a pipeline
};

Plan train_plan(const WholeModel& whole, const Job& job, Place place, const PlanInputs& inputs,
                StepKind kind) {
  Program program = keep_stage(whole.train, whole.first_sublayers, place, job.pipeline);
  chunk_loss(program, job.loss_chunks, *inputs.library, inputs.threads);
  recompute(program, job);
  const std::set<BufferId> in_pieces =
      chunk_mlp(program, job.mlp_chunks, *inputs.library, inputs.threads);
  issue_early(program, place);
  if (place.stages() > 1 && splits_backward(job.pipeline.schedule))
    split_backward(program, in_pieces);
  offload_activations(program, job);
  separate_frozen(program);
  separate_experts(program);
  separate_replicated(program, place);
  const Residency residency = step_residency(job, place, kind);
  layout(program, job, place, residency);
  reduce(program, job, place, residency);
  update(program, job, place, residency, kind);
  if (updates_in_groups(job, kind)) send_in_groups(program, job, place, kind);
  bring_operands(program, job);
  update_buffers(program, job, place);
  gather(program, job, place, residency);
  halve_sums(program, job, place);
  join_norms(program, *inputs.library, inputs.threads);
  pack(program, *inputs.library, inputs.threads);
  begin_step(program);
  const int64_t micro_batches = job.batch.accumulation;
  std::vector<StageTask> tasks =
      stage_order(job.pipeline.schedule, place.stages(), job.pipeline.virtual_stages, place.stage(),
                  static_cast<int>(micro_batches));
  Plan plan =
      finish_plan(std::move(program), job, place, std::move(tasks), micro_batches, inputs.threads);
  plan.kind = kind;
  plan.adds = residency.adds;
  return plan;
}

// The regular plan's buffers are what checkpoints save, so it has those of the others.
void check_persistent(const Program& regular, const Plan& plan) {
  for (const Buffer& b : plan.program.buffers) {
    if (b.lifetime != Lifetime::persistent || b.parent != kNone) continue;
    const BufferId id = regular.find(b.name);
    check(id != kNone && regular.at(id).bytes() == b.bytes() && regular.at(id).space == b.space,
          "{} of the steps with {} is not in the regular plan", b.name, name_of(plan.kind));
  }
}

// Returns the plans of a rank without addresses.
RankPlan unplaced(const WholeModel& whole, const Job& job, Place place, const PlanInputs& inputs) {
  RankPlan rank;
  for (const StepKind kind : step_kinds(job)) {
    Plan plan = train_plan(whole, job, place, inputs, kind);
    if (kind == StepKind::regular)
      rank.train = std::move(plan);
    else
      rank.other.push_back(std::move(plan));
  }
  for (const Plan& plan : rank.other) check_persistent(rank.train.program, plan);
  Program program = keep_stage(whole.validate, whole.first_sublayers, place, job.pipeline);
  chunk_loss(program, job.loss_chunks, *inputs.library, inputs.threads);
  chunk_mlp(program, job.mlp_chunks, *inputs.library, inputs.threads);
  rank.validate = forward_plan(std::move(program), job, place, inputs);
  return rank;
}

// Returns all plans of a rank; that of a validation that the job does not have is empty.
std::vector<Plan*> plans_of(RankPlan& rank) {
  std::vector<Plan*> plans{&rank.train};
  for (Plan& plan : rank.other) plans.push_back(&plan);
  if (!rank.validate.order.empty()) plans.push_back(&rank.validate);
  return plans;
}

RankPlan draft(const WholeModel& whole, const Job& job, Place place, const PlanInputs& inputs) {
  RankPlan rank = unplaced(whole, job, place, inputs);
  rank.memory = place_memory(plans_of(rank), inputs);
  return rank;
}

// Gives the parts of a pipeline their sublayers.
void divide(WholeModel& whole, std::vector<int64_t> first_sublayers, const Job& job) {
  whole.first_sublayers = std::move(first_sublayers);
  for (Program* program : {&whole.train, &whole.validate})
    if (!program->instructions.empty())
      tie_stages(*program, whole.first_sublayers, job.pipeline, place_of(job, 0));
}

// What plans take of a library where all ranks must come to the same bytes, whatever their processors and threads: no
// workspace and no packed weights.
class SizesOfModel final : public KernelLibrary {
 public:
  int64_t workspace_bytes(const KernelSpec&) const override { return 0; }
  int64_t packed_bytes(const KernelSpec&) const override { return 0; }
  std::unique_ptr<Kernel> make(const KernelSpec&) const override { return nullptr; }
  std::string description() const override { return "sizes of the model alone"; }
};

// Returns the model before it is divided among stages, for the ranks with these expert, sequence and tensor coordinates.
WholeModel undivided_model(const Job& job, const Place& place, const PlanInputs& inputs) {
  WholeModel whole;
  const auto build = [&](Program& program, ForwardOptions options) {
    options.seq_len = job.model.seq_len();
    options.documents = job.data.packing == Packing::pack;
    options.padding = job.data.packing != Packing::none;
    options.objective = job.objective;
    options.row_multiple = inputs.library->row_multiple();
    if (options.training) {  // a validation has the plain loss, of which the perplexity is one
      options.label_smoothing = static_cast<float>(job.loss.label_smoothing);
      options.z_loss = static_cast<float>(job.loss.z_loss);
      options.bias_update = static_cast<float>(job.experts.bias_update);
      options.router_z_loss = static_cast<float>(job.experts.z_loss);
    }
    Builder builder(program, options);
    build_model(builder, job.model);
    recognise(program);
    split_layers(program, place, options.row_multiple);
    divide_experts(program, place);
  };
  build(whole.train, {.dtype = job.dtype, .batch = job.batch.micro_batch});
  set_update_forms(whole.train, job.optimizer);
  if (std::ranges::all_of(whole.train.parameters, &Parameter::frozen))
    fail_user("dstrain.model: every parameter of the {} is frozen, so there is nothing to train",
              job.model.family().title);
  backward(whole.train);
  fuse(whole.train, *inputs.library, inputs.threads);
  build(whole.validate, {.dtype = job.dtype, .batch = job.batch.micro_batch, .training = false});
  fuse(whole.validate, *inputs.library, inputs.threads);
  return whole;
}

// Returns stage_bytes() of a model that is made already. `whole` and `job` must outlive the result.
StageBytes stage_bytes_of(const WholeModel& whole, const Job& job) {
  const auto sizes = std::make_shared<PlanInputs>(PlanInputs{std::make_shared<SizesOfModel>()});
  return [&whole, &job, sizes](const std::vector<int64_t>& first_sublayers, int stage) {
    WholeModel divided = whole;
    divide(divided, first_sublayers, job);
    const Place place = place_of(job, 0).moved(Axis::pipe, stage);
    return draft(divided, job, place, *sizes).memory.total();
  };
}

WholeModel whole_model(const Job& job, const Place& place, const PlanInputs& inputs) {
  WholeModel whole = undivided_model(job, place, inputs);
  if (job.pipeline.stages > 1)
    divide(whole, divide_model(whole.train, job, inputs.rates, stage_bytes_of(whole, job)), job);
  return whole;
}

std::vector<RankPlan> draft_stages(const WholeModel& whole, const Job& job, const Place& place,
                                   const PlanInputs& inputs) {
  std::vector<RankPlan> stages;
  for (int stage = 0; stage < place.stages(); ++stage)
    stages.push_back(draft(whole, job, place.moved(Axis::pipe, stage), inputs));
  return stages;
}

void prove(RankPlan& rank, const Job& job) {
  for (Plan* plan : plans_of(rank)) {
    order_communication(*plan, job.overlap_comm, job.overlap_tensor);
    verify(*plan);
  }
}

// Returns for each kind of group that the rank is in another rank of it: the last one, which has the padding of units
// if there is any, or for that one the first. All ranks of a run compare their plans when it starts.
std::vector<Place> peers_of(const Place& place) {
  std::vector<Place> peers;
  for (const Axis axis : {Axis::shard, Axis::replica, Axis::expert, Axis::sequence, Axis::tensor}) {
    const Place last = place.moved(axis, place.ranks_in(axis) - 1);
    const Place peer = last == place ? place.moved(axis, 0) : last;
    if (peer != place) peers.push_back(peer);
  }
  return peers;
}

}  // namespace

RankPlan make_rank_plan(const Job& job, Place place, const PlanInputs& inputs) {
  RankPlan rank = draft(whole_model(job, place, inputs), job, place, inputs);
  prove(rank, job);
  return rank;
}

StageBytes stage_bytes(const Job& job, const PlanInputs& inputs) {
  struct Asked {
    WholeModel whole;
    Job job;
    StageBytes bytes;
  };
  const auto asked =
      std::make_shared<Asked>(Asked{undivided_model(job, place_of(job, 0), inputs), job, {}});
  asked->bytes = stage_bytes_of(asked->whole, asked->job);
  return [asked](const std::vector<int64_t>& first_sublayers, int stage) {
    return asked->bytes(first_sublayers, stage);
  };
}

std::vector<RankPlan> draft_stage_plans(const Job& job, int rank, const PlanInputs& inputs) {
  const Place place = place_of(job, rank);
  return draft_stages(whole_model(job, place, inputs), job, place, inputs);
}

std::vector<RankPlan> make_stage_plans(const Job& job, int rank, const PlanInputs& inputs) {
  const Place place = place_of(job, rank);
  const WholeModel whole = whole_model(job, place, inputs);
  std::vector<RankPlan> stages = draft_stages(whole, job, place, inputs);
  for (RankPlan& stage : stages) prove(stage, job);
  if (job.ranks == 1) return stages;
  std::vector<const RankPlan*> together;
  for (const RankPlan& stage : stages) together.push_back(&stage);
  verify_ranks(together);
  for (const Place& peer : peers_of(place)) {
    const bool same_part = place.rank_in(kLayerAxes) == peer.rank_in(kLayerAxes);
    compare_collectives(
        stages[static_cast<size_t>(place.stage())],
        unplaced(same_part ? whole : whole_model(job, peer, inputs), job, peer, inputs));
  }
  return stages;
}

}  // namespace dstrain
