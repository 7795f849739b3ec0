#include "runtime/config/family/divisibility.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr int64_t kMostTried = 4096;  // that are tried

// Each returns whether a size divides.

bool heads_divide(const DividedSizes& s, const DividingRanks& r) {
  return s.heads % r.tensor == 0 &&
         (s.kv_heads == 0 || s.kv_heads % r.tensor == 0 || r.tensor % s.kv_heads == 0);
}

bool classes_suffice(const DividedSizes& s, const DividingRanks& r) {
  return s.classes == 0 || s.classes >= r.tensor;
}

bool tokens_divide(const DividedSizes& s, const DividingRanks& r) {
  return s.tokens % r.sequence == 0;
}

// The rows between sublayers: a tensor rank has a part of them. What tokens that do not divide leave is not judged.
bool rows_divide(const DividedSizes& s, const DividingRanks& r) {
  return !tokens_divide(s, r) || s.micro_batch * (s.tokens / r.sequence) % r.tensor == 0;
}

bool exchange_divides(const DividedSizes& s, const DividingRanks& r) {
  const int64_t heads = s.heads / r.tensor;
  const int64_t kv_heads = s.kv_heads == 0 ? 0 : std::max<int64_t>(1, s.kv_heads / r.tensor);
  if (heads % r.sequence != 0) return false;
  return kv_heads == 0 || kv_heads % r.sequence == 0 || r.sequence % kv_heads == 0;
}

// Returns "use 1, 2 or 4" for the numbers of ranks that `works` takes.
template <class F>
std::string advice(F&& works) {
  std::vector<int64_t> numbers;
  for (int64_t n = 1; n <= kMostTried; ++n)
    if (works(n)) numbers.push_back(n);
  return "use " + alternatives(numbers);
}

// Returns "6 attention heads", and of tensor ranks where they come from.
std::string heads_text(int64_t all, int64_t tensor, std::string_view what) {
  return tensor > 1 ? fmt::format("{} ({} / {} tensor ranks)",
                                  counted(std::max<int64_t>(1, all / tensor), what), all, tensor)
                    : counted(all, what);
}

}  // namespace

DividedSizes divided_sizes(const ModelConfig& model, int64_t micro_batch) {
  const ModelFamily& family = model.family();
  DividedSizes sizes{.tokens = model.seq_len(), .micro_batch = micro_batch};
  for (const ModelInput& input : family.inputs) {
    const int64_t classes = input.classes.empty() ? 0 : model.integer(input.classes);
    if (classes > 0)
      sizes.classes = sizes.classes == 0 ? classes : std::min(sizes.classes, classes);
  }
  if (family.heads_key.empty()) return sizes;
  sizes.heads = model.integer(family.heads_key);
  if (!family.kv_heads_key.empty()) sizes.kv_heads = model.integer(family.kv_heads_key);
  if (sizes.kv_heads == 0) sizes.kv_heads = sizes.heads;
  return sizes;
}

std::string tensor_problem(const DividedSizes& s, const DividingRanks& r) {
  // Else sequence_problem() has the reason, whatever the tensor ranks are.
  const bool exchange_matters = r.sequence > 1 && exchange_divides(s, {r.sequence, 1});
  const auto use = [&] {
    return advice([&](int64_t n) {
      const DividingRanks tried{r.sequence, n};
      return (s.heads == 0 || n <= s.heads) && heads_divide(s, tried) && rows_divide(s, tried) &&
             classes_suffice(s, tried) && (!exchange_matters || exchange_divides(s, tried));
    });
  };
  if (s.heads % r.tensor != 0)
    return fmt::format("the {} of the model {} not divide among {} ranks: {}",
                       counted(s.heads, "attention head"), s.heads == 1 ? "does" : "do", r.tensor,
                       use());
  if (!heads_divide(s, r))
    return fmt::format(
        "the {} of the model can neither be divided among {} ranks nor each be had by as many: {}",
        counted(s.kv_heads, "key/value head"), r.tensor, use());
  if (!classes_suffice(s, r))
    return fmt::format(
        "the model has {} tokens or labels to tell apart, and each of {} ranks needs one at least: "
        "{}",
        s.classes, r.tensor, use());
  if (rows_divide(s, r)) return "";
  return fmt::format(
      "a micro-batch of {} of {}{} does not divide among {} ranks: {}, or another "
      "train_micro_batch_size_per_gpu",
      counted(s.micro_batch, "sample"), counted(s.tokens, "token"),
      r.sequence > 1 ? fmt::format(" / {} sequence ranks", r.sequence) : "", r.tensor, use());
}

std::string sequence_problem(const DividedSizes& s, const DividingRanks& r) {
  if (r.sequence == 1) return "";
  const bool heads_known = heads_divide(s, r);  // else tensor_problem() has the reason
  const auto use = [&] {
    return advice([&](int64_t n) {
      const DividingRanks tried{n, r.tensor};
      return n <= s.tokens && tokens_divide(s, tried) &&
             (!heads_known || exchange_divides(s, tried));
    });
  };
  if (!tokens_divide(s, r))
    return fmt::format(
        "the {} of a sample do not divide among {} ranks: {}, or another "
        "dstrain.data.seq_len",
        counted(s.tokens, "token"), r.sequence, use());
  if (!heads_known || exchange_divides(s, r)) return "";
  const std::string heads = heads_text(s.heads, r.tensor, "attention head");
  if (s.heads / r.tensor % r.sequence != 0)
    return fmt::format("{} do not divide among {} ranks: {}", heads, r.sequence, use());
  return fmt::format(
      "{} of {} can neither be divided among {} ranks nor each copied to as many: {}",
      heads_text(s.kv_heads, r.tensor, "key/value head"), heads, r.sequence, use());
}

}  // namespace dstrain
