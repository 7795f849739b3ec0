#include "runtime/engine/files/unread_head.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/storage/weights/weight_files.h"
#include "runtime/storage/weights/weights_reader.h"

namespace dstrain {
namespace {

constexpr int64_t kComparedAtOnce = int64_t{1} << 20;  // elements

// Returns whether two tensors of the files have the same values.
bool have_same_values(const std::string& weights, const std::string& prefix,
                      const StateRegister& both) {
  const WeightsReader reader(weights, both, {.prefix = prefix, .ignored = {"*"}});
  WeightsReader::Buffers buffers;
  std::vector<float> first(static_cast<size_t>(kComparedAtOnce)), second(first);
  const int64_t all = both.front().global_shape.elements();
  for (int64_t begin = 0; begin < all; begin += kComparedAtOnce) {
    const int64_t count = std::min(kComparedAtOnce, all - begin);
    reader.read(0, begin, count, first.data(), buffers);
    reader.read(1, begin, count, second.data(), buffers);
    if (!std::equal(first.begin(), first.begin() + count, second.begin())) return false;
  }
  return true;
}

}  // namespace

bool has_other_head(const std::string& weights, const ModelConfig& model, const ForeignNames& names,
                    const std::string& before) {
  if (!ties_head(model) || model.gives_score()) return false;  // a score has another head
  const WeightFiles files(weights, names);
  const std::optional<TokenTable> table = model.measures().token_table;
  if (!table) return false;
  const std::string own = before + table->name, other = before + std::string(kHeadTensor);
  const std::optional<WeightFiles::Found> embedding = files.find(own), head = files.find(other);
  // The files may have the table by the head's name alone.
  if (!head || !embedding || head->tensor == embedding->tensor) return false;
  StateRegister both(2);
  both[0].name = own;
  both[1].name = other;
  for (StateEntry& entry : both) {
    entry.slot = "master";
    entry.global_shape = {embedding->tensor->shape.empty() ? 0 : embedding->tensor->shape[0],
                          table->width};
  }
  return head->tensor->shape != embedding->tensor->shape ||
         !have_same_values(weights, names.prefix, both);
}

void check_unread_head(const std::string& weights, const ModelConfig& model) {
  if (!has_other_head(weights, model, foreign_names_of(model))) return;
  fail_user(
      "the weights in {} have a head, {}, that differs from the embedding, {}, and the model's "
      "head is its embedding (tie_word_embeddings): set tie_word_embeddings to false in its "
      "config.json, and the head is read",
      weights, kHeadTensor, model.measures().token_table->name);
}

}  // namespace dstrain
