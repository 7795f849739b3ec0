// SlotModel: a trained model on a processor that keeps the keys and values of the tokens of several texts
// (runtime/ir/slots.h). A pass reads the tokens that a slot does not have yet: a prompt, one token of each text, or what
// has changed since a text was read last.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/comm/self_comm.h"
#include "runtime/engine/forward/next_token.h"
#include "runtime/engine/step/executor.h"
#include "runtime/plan/plan.h"

namespace dstrain {

class SlotModel final : public NextToken {
 public:
  // `plans`: make_slot_plans() of the same sizes, for in_f32(job). Throws UserError if the weights cannot be read.
  SlotModel(const Job& job, const WeightsSource& place, const Implementations& implementations,
            const SlotSizes& sizes, RankPlan plans, int threads);

  void run(std::span<const Text> texts, const Take& take) override;
  int64_t slots() const override { return sizes_.slots; }

 private:
  // The values of the inputs of a plan's rows.
  struct Rows {
    std::vector<int32_t> ids, documents, slots, last;
  };
  // A text and the first of its tokens that its slot does not have.
  struct Pending {
    size_t text = 0;
    int64_t slot = 0;
    std::span<const int32_t> ids;
    size_t begin = 0;
  };
  Pending pending_of(size_t i, const Text& text) const;
  // Runs a plan over the rows; `plan`: 0 has a row for each slot, the others read one text.
  const float* run_plan(size_t plan, Rows& rows);
  void set_row(Rows& rows, size_t row, const Pending& text, size_t at);
  // Reads tokens of a text until all are read, and returns the logits of the last one.
  const float* read(Pending text);

  const Plan& plan_at(size_t i) const { return i == 0 ? plans_.validate : plans_.other[i - 1]; }

  Job job_;
  SlotSizes sizes_;
  Backend backend_;
  SelfComm self_;
  RankPlan plans_;
  Arenas arenas_;
  MeshComm mesh_;
  std::vector<std::unique_ptr<Executor>> executors_;  // of each plan; made when it runs first
  std::vector<std::vector<int32_t>> held_;            // the tokens of each slot
};

}  // namespace dstrain
