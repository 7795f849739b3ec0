#include "runtime/data/token_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/file/data_files.h"

namespace dstrain {
namespace {

// The name of the tokens of a sample in messages, and the key that changes them.
struct SampleKey {
  std::string name, path;
};

SampleKey sample_key(const ModelConfig& model) {
  const std::string context(model.family().context_key());
  if (model.seq_len() == model.context()) return {context, model_path(context)};
  return {"seq_len", "dstrain.data.seq_len"};
}

// Returns the checksum of a file, with that of the file that says which of its tokens count and that of a teacher, if there are
// such. The same bytes are other tokens where they are read as uint32.
uint64_t checksum_of_source(const TokenSource& source, const TeacherFile* teacher = nullptr) {
  std::vector<uint64_t> parts = {source.file().checksum()};
  if (source.targets_file()) parts.push_back(source.targets_file()->checksum());
  if (teacher) parts.push_back(teacher->file().checksum());
  if (source.bare_width() == 4) parts.push_back(4);
  return parts.size() == 1
             ? parts.front()
             : checksum_of(parts.data(), static_cast<int64_t>(parts.size() * sizeof(uint64_t)));
}

// Calls visit with the files of a source.
template <class Visit>
void each_file(const TokenSource& source, const Visit& visit) {
  visit(source.file());
  if (source.targets_file()) visit(*source.targets_file());
}

}  // namespace

TokenDataset::TokenDataset(const Job& job, std::vector<std::unique_ptr<TokenSource>> files,
                           std::unique_ptr<TokenSource> validation)
    : files_(std::move(files)),
      validation_(std::move(validation)),
      block_(job.model.seq_len()),
      top_k_(job.objective.teacher_top_k) {
  for (const auto& file : files_) {
    tokens_ += file->tokens();
    if (job.objective.has_teacher())
      teachers_.emplace_back(*file, TaughtSamples{.length = block_}, top_k_);
  }
  const auto held_out =
      validation_
          ? 0
          : static_cast<int64_t>(std::floor(static_cast<double>(tokens_) * job.data.val_fraction));
  parts_[0] = make_part(pieces_of(0, tokens_ - held_out), job.data.random_order, job.seed);
  parts_[1] = make_part(
      validation_ ? std::vector{Piece{.source = validation_.get(), .tokens = validation_->tokens()}}
                  : pieces_of(tokens_ - held_out, tokens_),
      false, job.seed);
  if (job.model.family().input(InputRole::features))
    features_.emplace(job.seed, job.model.elements_of(InputRole::features));
  check_parts(job);
  check_vocabulary(job);
  count_targets();
  for (const auto& file : files_) file->file().check_whole();
}

std::vector<TokenDataset::Piece> TokenDataset::pieces_of(int64_t begin, int64_t end) const {
  std::vector<Piece> pieces;
  int64_t before = 0;
  for (size_t i = 0; i < files_.size(); ++i) {
    TokenSource* const file = files_[i].get();
    const int64_t from = std::max(begin - before, int64_t{0}),
                  to = std::min(end - before, file->tokens());
    if (from < to)
      pieces.push_back({.source = file,
                        .teacher = teachers_.empty() ? nullptr : &teachers_[i],
                        .begin = from,
                        .tokens = to - from});
    before += file->tokens();
  }
  return pieces;
}

TokenDataset::Part TokenDataset::make_part(std::vector<Piece> pieces, bool random,
                                           uint64_t seed) const {
  Part part;
  for (Piece& piece : pieces) {
    piece.samples = std::max(piece.tokens - 1, int64_t{0}) / block_;
    piece.first_sample = part.samples;
    part.samples += piece.samples;
    part.tokens += piece.tokens;
  }
  part.pieces = std::move(pieces);
  if (part.samples > 0) part.order.emplace(part.samples, random, seed);
  return part;
}

void TokenDataset::check_parts(const Job& job) const {
  const auto [key, path] = sample_key(job.model);
  const std::string_view unit = files_.front()->unit();
  const std::string needs = fmt::format("one sample of {} {} needs {}", key, block_, block_ + 1);
  const auto complain = [&, &key_path = path](std::string_view name, const Part& part,
                                              std::string_view advice) {
    if (files_.size() == 1)
      fail_user(
          "the data file {} is too short: it has {}, its {} part {} of them (val_fraction {}), "
          "and {}; give more data, a smaller {}{}",
          files_.front()->file().path(), counted(tokens_, unit), name, part.tokens,
          job.data.val_fraction, needs, key_path, advice);
    fail_user(
        "the data files are too short: {} have {}, their {} part {} of them (val_fraction {}) in "
        "{}, and {}; give more data, a smaller {}{}",
        counted(static_cast<int64_t>(files_.size()), "file"), counted(tokens_, unit), name,
        part.tokens, job.data.val_fraction,
        counted(static_cast<int64_t>(part.pieces.size()), "file"), needs, key_path, advice);
  };
  if (parts_[0].samples == 0) complain("training", parts_[0], " or a smaller val_fraction");
  if (parts_[1].samples > 0) return;
  if (validation_)
    fail_user(
        "the validation file {} is too short: it has {}, and {}; give more data or a smaller "
        "{}",
        validation_->file().path(), counted(validation_->tokens(), unit), needs, path);
  if (job.eval_interval > 0)
    complain("validation", parts_[1], ", a larger val_fraction, or eval_interval 0");
}

void TokenDataset::count_targets() {
  bool known = false;
  for (const Piece& piece : parts_[0].pieces) {
    const DataFile* const file = piece.source->targets_file();
    if (!file || piece.samples == 0) continue;
    known = true;
    const unsigned char* const counts = file->checked(piece.begin + 1, piece.samples * block_);
    std::vector<int64_t> without(static_cast<size_t>(thread_count()));
    run_parts(std::ssize(without), [&](int64_t part) {
      const int64_t parts = std::ssize(without);
      for (int64_t i = piece.samples * part / parts; i < piece.samples * (part + 1) / parts; ++i)
        if (std::all_of(counts + i * block_, counts + (i + 1) * block_,
                        [](unsigned char c) { return c == 0; }))
          ++without[static_cast<size_t>(part)];
    });
    for (const int64_t n : without) without_target_ += n;
    file->check_whole();
  }
  if (known && without_target_ == parts_[0].samples)
    fail_user(
        "none of the {} of {} has a token that counts in the loss, by FILE.targets: let more "
        "tokens count, or give other data",
        counted(parts_[0].samples, "training sample"),
        files_.size() == 1 ? files_.front()->file().path()
                           : names_of_files(files(Split::train).paths));
}

void TokenDataset::check_vocabulary(const Job& job) {
  const int64_t vocab_size = job.model.vocabulary();
  const std::string key = model_path(job.model.family().vocabulary_key());
  const Vocabulary& own = files_.front()->vocabulary();
  const std::string& path = files_.front()->file().path();
  if (own.format == DataFormat::tokens && vocab_size <= 0)
    fail_user(
        "the data file {} holds token ids, which needs {}: give the size of the tokenizer's "
        "vocabulary",
        path, key);
  if (vocab_size > 0 && vocab_size < own.size)
    fail_user("{} is {}, and the data file {} needs {}: give at least that, or leave it out", key,
              vocab_size, path, own.size);
  const auto check_used = [&](const Part& part, int64_t samples) {
    for (const Piece& piece : part.pieces) {
      const int64_t used = std::min(piece.samples, samples - piece.first_sample);
      if (used > 0)
        piece.source->check_ids(piece.begin, piece.begin + used * block_ + 1, {vocab_size, key});
    }
  };
  check_used(parts_[0], parts_[0].samples);
  check_used(parts_[1], std::min(parts_[1].samples, job.eval_samples));
  vocabulary_ = own;
  for (const auto& file : files_)
    vocabulary_.size = std::max(vocabulary_.size, file->vocabulary().size);
  if (validation_) vocabulary_.size = std::max(vocabulary_.size, validation_->vocabulary().size);
  ids_ = std::max(vocab_size, vocabulary_.size);
}

void TokenDataset::read_tokens(const Part& from, int64_t place, int32_t* ids, int32_t* labels,
                               const TeacherInputs& teacher) const {
  const int64_t sample = from.order->sample_at(place);
  const auto behind = std::ranges::upper_bound(from.pieces, sample, {}, &Piece::first_sample);
  const Piece& piece = *(behind - 1);
  const int64_t begin = piece.begin + (sample - piece.first_sample) * block_;
  piece.source->read(begin, block_, ids, labels);
  piece.source->ignore(begin + 1, block_, labels);
  if (teacher.ids) piece.teacher->read(begin, block_, labels, ids_, teacher.ids, teacher.log_probs);
}

void TokenDataset::read(Split split, int64_t first, int64_t count,
                        std::span<const InputTensor> inputs) const {
  const Part& from = part(split);
  check(from.order.has_value(), "a part without samples is read");
  auto* ids = static_cast<int32_t*>(samples_in(inputs, InputRole::token_ids, count, block_));
  auto* labels = static_cast<int32_t*>(samples_in(inputs, InputRole::labels, count, block_));
  const TeacherInputs teacher(inputs, count, block_, top_k_);
  for (int64_t i = 0; i < count; ++i)
    read_tokens(from, first + i, ids + i * block_, labels + i * block_, teacher.behind(i * block_));
  for (const Piece& piece : from.pieces) {
    each_file(*piece.source, [](const DataFile& file) { file.check_whole(); });
    if (piece.teacher) piece.teacher->file().check_whole();
  }
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
  const auto check = [](const DataFile& file) { file.check_unchanged(); };
  for (const auto& file : files_) each_file(*file, check);
  for (const TeacherFile& teacher : teachers_) check(teacher.file());
  if (validation_) each_file(*validation_, check);
}

uint64_t TokenDataset::fingerprint() const {
  if (fingerprint_) return *fingerprint_;
  std::vector<uint64_t> of_files;
  for (size_t i = 0; i < files_.size(); ++i)
    of_files.push_back(checksum_of_source(*files_[i], teachers_.empty() ? nullptr : &teachers_[i]));
  fingerprint_ =
      of_files.size() == 1
          ? of_files.front()
          : checksum_of(of_files.data(), static_cast<int64_t>(of_files.size() * sizeof(uint64_t)));
  return *fingerprint_;
}

uint64_t TokenDataset::validation_fingerprint() const {
  return validation_ ? checksum_of_source(*validation_) : 0;
}

SplitFiles TokenDataset::files(Split split) const {
  SplitFiles result;
  const auto add = [&result](const DataFile& file) {
    result.paths.push_back(file.path());
    result.bytes += file.bytes();
  };
  if (split == Split::train)
    for (const auto& file : files_) add(file->file());
  else if (validation_)
    add(validation_->file());
  return result;
}

std::string TokenDataset::files_text() const {
  const std::vector<std::string> paths = files(Split::train).paths;
  return fmt::format("{}: {}", paths.size() == 1 ? paths.front() : names_of_files(paths),
                     counted(tokens_, files_.front()->unit()));
}

std::string TokenDataset::summary() const {
  const Part& validation = parts_[1];
  std::string text = fmt::format("{}, {}; {} of {}", files_text(), vocabulary_.size_text(),
                                 counted(parts_[0].samples, "training sample"), block_);
  const auto without = std::ranges::count(parts_[0].pieces, 0, &Piece::samples);
  if (without > 0) text += fmt::format(" ({} too short for one)", counted(without, "file"));
  if (validation_)
    text +=
        fmt::format(", {} for validation from {}", validation.samples, validation_->file().path());
  else if (validation.samples > 0)
    text += fmt::format(", {} for validation", validation.samples);
  else
    text += fmt::format(", none for validation, whose part has {} and needs {}",
                        counted(validation.tokens, files_.front()->unit()), block_ + 1);
  if (without_target_ > 0)
    text += fmt::format(
        "; {} of the training samples have no token that counts in the loss, and a batch of such "
        "samples alone is a skipped step",
        without_target_);
  for (const auto& file : files_) text += remark_text(*file);
  if (validation_) text += remark_text(*validation_);
  for (const TeacherFile& teacher : teachers_) text += teacher.remark_text();
  if (features_) text += fmt::format("; {} made-up features beside each", features_->elements());
  return text;
}

}  // namespace dstrain
