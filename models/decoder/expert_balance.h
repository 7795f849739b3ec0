// What keeps the choices of experts balanced, and says how balanced they are: losses of all layers together, and the change of the
// biases by which experts are chosen.
#pragma once

#include <cstdint>

#include "models/decoder/decoder.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain::models {

class ExpertBalance {
 public:
  // `experts`: of a layer; `slots`: how many a row chooses. What it refers to must outlive it. Throws UserError if the run has
  // such a loss, and another objective than the next token.
  ExpertBalance(Builder& b, const ModelConfig& config, const MixturePart& part, int64_t experts,
                int64_t slots);

  // Takes a layer: the logits (R,E) of its router, where the rows of each expert end, i32 (E), and the registered buffer that is
  // added to scores where experts are chosen, or kNone.
  void add_layer(BufferId logits, BufferId ends, BufferId bias);
  // Adds the losses and the metric that the options and the model ask for, of the layers so far.
  void finish();

 private:
  BufferId counts_of(BufferId ends);
  void add_shares(BufferId logits);
  void add_squares(BufferId logits);
  void add_load(BufferId counts, int64_t rows);
  BufferId sum_of(BufferId before, BufferId now, const Shape& space);
  // Returns the number of targets of the micro-batch, f32 (1): a micro-batch counts as much as it has targets, as its cross-entropy
  // does.
  BufferId targets();
  // Returns logits without their row's largest, in exponentials, and that largest one.
  struct Powers {
    BufferId power = kNone, top = kNone;
  };
  Powers powers_of(BufferId logits);

  Builder& b_;
  const ModelConfig& c_;
  const int64_t experts_, slots_;
  const bool trains_, has_loss_;
  // How often each expert was chosen in all layers so far, and the sum of its shares of rows: f32 (experts).
  BufferId chosen_ = kNone, shares_ = kNone;
  BufferId squares_ = kNone;  // the sum over layers of the mean of what the z-loss squares
  BufferId load_ = kNone;     // the largest over layers of an expert's rows, over the mean
  int64_t rows_ = 0;          // of all layers so far
};

}  // namespace dstrain::models
