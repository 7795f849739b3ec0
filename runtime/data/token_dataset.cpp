#include "runtime/data/token_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/config/model/family.h"
#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {

TokenDataset::TokenDataset(const Job& job, std::unique_ptr<TokenSource> source)
    : source_(std::move(source)), block_(job.model.context()) {
  const int64_t n = source_->tokens();
  const auto held_out =
      static_cast<int64_t>(std::floor(static_cast<double>(n) * job.data.val_fraction));
  parts_[0] = make_part(0, n - held_out, job.data.random_order, job.seed);
  parts_[1] = make_part(n - held_out, held_out, false, job.seed);
  if (job.model.family().input(InputRole::features))
    features_.emplace(job.seed, job.model.elements_of(InputRole::features));
  check_parts(job);
  check_vocabulary(job);
  source_->file().check_whole();
}

TokenDataset::Part TokenDataset::make_part(int64_t begin, int64_t tokens, bool random,
                                           uint64_t seed) const {
  Part part{.begin = begin, .tokens = tokens, .samples = 0, .order = {}};
  if (tokens > block_) {
    part.samples = (tokens - 1) / block_;
    part.order.emplace(part.samples, random, seed);
  }
  return part;
}

void TokenDataset::check_parts(const Job& job) const {
  const std::string key(job.model.family().context_key()), path = model_path(key);
  const auto complain = [&](std::string_view name, const Part& part, std::string_view advice) {
    fail_user(
        "the data file {} is too short: it has {}, its {} part {} of them (val_fraction {}), "
        "and one sample of {} {} needs {}; {}",
        source_->file().path(), counted(source_->tokens(), source_->unit()), name, part.tokens,
        job.data.val_fraction, key, block_, block_ + 1, advice);
  };
  if (parts_[0].samples == 0)
    complain("training", parts_[0],
             fmt::format("give more data, a smaller {} or a smaller val_fraction", path));
  if (job.eval_interval > 0 && parts_[1].samples == 0)
    complain("validation", parts_[1],
             fmt::format("give more data, a smaller {}, a larger val_fraction, or eval_interval 0",
                         path));
}

void TokenDataset::check_vocabulary(const Job& job) {
  const int64_t vocab_size = job.model.vocabulary();
  const std::string& path = source_->file().path();
  const std::string key = model_path(job.model.family().vocabulary_key());
  if (vocabulary().format == DataFormat::tokens && vocab_size <= 0)
    fail_user(
        "the data file {} holds token ids, which needs {}: give the size of the tokenizer's "
        "vocabulary",
        path, key);
  if (vocab_size > 0 && vocab_size < vocabulary().size)
    fail_user("{} is {}, and the data file {} needs {}: give at least that, or leave it out", key,
              vocab_size, path, vocabulary().size);
  const auto check_used = [&](const Part& part, int64_t samples) {
    if (samples > 0)
      source_->check_ids(part.begin, part.begin + samples * block_ + 1, {vocab_size, key});
  };
  check_used(parts_[0], parts_[0].samples);
  check_used(parts_[1], std::min(parts_[1].samples, job.eval_samples));
}

void TokenDataset::read(Split split, int64_t first, int64_t count,
                        std::span<const InputTensor> inputs) const {
  const Part& from = part(split);
  check(from.order.has_value(), "a part without samples is read");
  auto* ids = static_cast<int32_t*>(samples_in(inputs, InputRole::token_ids, count, block_));
  auto* labels = static_cast<int32_t*>(samples_in(inputs, InputRole::labels, count, block_));
  for (int64_t i = 0; i < count; ++i)
    source_->read(from.begin + from.order->sample_at(first + i) * block_, block_, ids + i * block_,
                  labels + i * block_);
  source_->file().check_whole();
  if (!features_) return;
  const int64_t elements = features_->elements();
  auto* features = static_cast<float*>(samples_in(inputs, InputRole::features, count, elements));
  run_ranges(count * elements > 1 << 15 ? thread_count() : 1, count,
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i)
                 features_->fill(split, from.order->sample_at(first + i), features + i * elements);
             });
}

void TokenDataset::check_unchanged() const {
  source_->file().check_unchanged();
}

uint64_t TokenDataset::fingerprint() const {
  if (!fingerprint_)
    fingerprint_ = checksum_of_many(source_->file().data(), source_->file().bytes());
  return *fingerprint_;
}

std::string TokenDataset::summary() const {
  std::string text = fmt::format("{}: {}, vocabulary {}; {} of {}", source_->file().path(),
                                 counted(source_->tokens(), source_->unit()), vocabulary().size,
                                 counted(parts_[0].samples, "training sample"), block_);
  const Part& validation = parts_[1];
  text += validation.samples > 0
              ? fmt::format(", {} for validation", validation.samples)
              : fmt::format(", none for validation, whose part has {} and needs {}",
                            counted(validation.tokens, source_->unit()), block_ + 1);
  if (features_) text += fmt::format("; {} made-up features beside each", features_->elements());
  return text;
}

}  // namespace dstrain
