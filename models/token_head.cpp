#include "models/token_head.h"

#include "runtime/ir/builder/answer_loss.h"

namespace dstrain::models {

void add_token_head(Builder& b, const ModelConfig& model, BufferId x, const TokenHead& head) {
  const int64_t width = model.width();
  const auto targets = [&] {
    return b.input("targets", InputRole::labels, DType::i32, {b.seq_len(model.context())});
  };
  if (model.gives_score()) {
    const BufferId weight =
        b.parameter(std::string(kScoreTensor), {1, width}, Init::normal, head.std);
    const BufferId scores = b.linear(x, weight, kNone, Activation::none);
    if (!b.options().with_loss) return b.output(scores);
    const BufferId last_tokens = targets();
    // A program without the objective has one row for a sample: it is looked at, and not run.
    if (!b.options().objective.scores_answers()) return b.output(scores);
    return add_reward_loss(b, scores, last_tokens);
  }
  const BufferId table = head.table != kNone ? head.table
                                             : b.vocabulary(head.name, {model.vocabulary(), width},
                                                            Init::normal, head.std);
  BufferId logits = b.linear(x, table, kNone, Activation::none);
  if (head.softcap > 0) logits = b.softcap(logits, static_cast<float>(head.softcap));
  if (b.options().with_loss)
    b.cross_entropy(logits, targets(), model.vocabulary());
  else
    b.output(logits);
}

}  // namespace dstrain::models
