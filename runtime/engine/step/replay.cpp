// The part of Executor that replays steps as graphs.
#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"
#include "runtime/engine/step/executor.h"

namespace dstrain {

void Executor::settle_graph() {
  if (job_.graph == GraphMode::off) return;
  std::string reason;
  if (backend_.device->is_host())
    reason = "the CPU has no graphs";
  else if (mesh_.world().size() > 1 && !mesh_.data().on_stream())
    reason =
        "gradients travel through the host: it needs one rank, or a GPU for each rank and NCCL";
  else if (copies_)
    reason = "offloaded state moves between the GPU and the host";
  else if (plan_.program.weighs_losses())
    reason = "the host adds the weighted losses of the model";
  else if (!finish_)
    reason = fmt::format("{} ends a step on the host", backend_.library->description());
  use_graph_ = reason.empty();
  if (job_.graph == GraphMode::on && !use_graph_)
    fail_user("dstrain.cuda_graph is on, and a step cannot be a graph: {}; use auto", reason);
  if (!use_graph_) return;
  pieces_ = step_pieces(plan_, body_);
  for (auto& event : launched_) event = backend_.device->make_event();
}

// Captures the issues of a piece for its first micro-batch. All streams that take part join before its end, so a
// collective does not go on beside the next piece.
void Executor::capture(StepPiece& piece, StepContext& context) {
  queue_->capturing();
  check(backend_.compute->begin_capture(), "{} has no graphs", backend_.device->name());
  run_issues(piece.begin, piece.end, context);
  wait_for(piece.posted, false);
  piece.graph = backend_.compute->end_capture();
  queue_->captured();
}

// Runs the body as graphs; captures them the first time. The host is at most two launches ahead of the device, so that
// the limits on an instruction's time hold for a few launches, not for all micro-batches of a step.
void Executor::run_body(StepContext& context) {
  int64_t launches = 0;
  for (size_t p = 0; p < pieces_.size(); ++p) {
    StepPiece& piece = pieces_[p];
    if (!piece.graph) capture(piece, context);
    for (int64_t launch = 0; launch < piece.launches; ++launch) {
      if (slot_ && piece.begin < piece.end)
        slot_->publish(first_name_ + plan_.order[piece.begin].instruction);
      if (launch > 0) move_to_graph(piece, launch, *context.state);
      Event& launched = *launched_[static_cast<size_t>(launches++ % std::ssize(launched_))];
      launched.synchronize();
      piece.graph->launch(*backend_.compute);
      launched.record(*backend_.compute);
      queue_->replayed(p);
    }
    if (piece.launches > 1) device_state_.set_first_sample(context.state->first_sample);
  }
}

// Lets the next launch of a graph work on another micro-batch than the one whose addresses and samples it has: brings
// that one's inputs to those addresses, and counts the step's samples from a later one on. Both last until the end of
// the piece: no later piece reads the inputs that are overwritten.
void Executor::move_to_graph(const StepPiece& piece, int64_t launch, const StepState& state) {
  const auto micro = static_cast<int>(piece.micro + launch);
  for (const BufferId id : piece.moved) {
    const Tensor to = arenas_.tensor(plan_, id, piece.micro);
    backend_.compute->copy(to.data, arenas_.tensor(plan_, id, micro).data, to.bytes());
  }
  device_state_.set_first_sample(state.first_sample + launch * plan_.place.ranks_in(kSampleAxes) *
                                                          job_.rows_of(job_.batch.micro_batch));
}

Executor::GraphSize Executor::graph_size() const {
  GraphSize size;
  for (const StepPiece& piece : pieces_) {
    if (!piece.graph) continue;
    ++size.graphs;
    size.nodes += piece.graph->nodes();
    size.launches += piece.launches;
  }
  return size;
}

}  // namespace dstrain
