#include "runtime/data/packing/packed_dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/job.h"
#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/data/file/data_files.h"

namespace dstrain {
namespace {

// Returns whether one of the tokens [begin, end) counts in the loss.
bool has_target(const TokenSource& tokens, int64_t begin, int64_t end) {
  const DataFile* file = tokens.targets_file();
  if (!file) return true;
  const unsigned char* const counts = file->checked(begin, end - begin);
  return std::any_of(counts, counts + (end - begin), [](unsigned char c) { return c != 0; });
}

}  // namespace

PackedDataset::PackedDataset(const Job& job, std::vector<std::unique_ptr<TokenSource>> files,
                             std::unique_ptr<TokenSource> validation)
    : own_validation_(validation != nullptr),
      length_(static_cast<int32_t>(job.model.seq_len())),
      rows_(job.objective.rows_per_sample()),
      ids_(job.model.vocabulary()),
      objective_(job.objective),
      packing_(job.data.packing) {
  if (validation) files.push_back(std::move(validation));
  const std::string key = model_path(job.model.family().vocabulary_key());
  for (std::unique_ptr<TokenSource>& tokens : files) {
    DocumentFile documents(*tokens);
    tokens->check_ids(0, tokens->tokens(), {job.model.vocabulary(), key});
    tokens->file().check_whole();
    if (sources_.empty()) vocabulary_ = tokens->vocabulary();
    vocabulary_.size = std::max(vocabulary_.size, tokens->vocabulary().size);
    Source source{std::move(tokens), std::move(documents)};
    const bool trained = !own_validation_ || &tokens != &files.back();
    if (job.objective.has_teacher() && trained)
      source.teacher.emplace(*source.tokens,
                             TaughtSamples{.length = length_,
                                           .documents = &source.documents.file(),
                                           .longest = source.documents.longest()},
                             job.objective.teacher_top_k);
    sources_.push_back(std::move(source));
  }
  int64_t all = 0;
  const int32_t trained = training_sources();
  for (int32_t s = 0; s < trained; ++s) all += sources_[static_cast<size_t>(s)].tokens->tokens();
  const auto held_out =
      static_cast<int64_t>(std::floor(static_cast<double>(all) * job.data.val_fraction));
  parts_[0] = make_part(job, 0, trained, 0, all - held_out, job.data.random_order);
  parts_[1] = own_validation_ ? make_part(job, trained, trained + 1, 0, INT64_MAX, false)
                              : make_part(job, 0, trained, all - held_out, INT64_MAX, false);
  for (const Source& source : sources_)
    source.each_file([](const DataFile& file) { file.check_whole(); });
  check_samples(Split::train, "training", "");
  if (own_validation_ || job.eval_interval > 0)
    check_samples(Split::validation, "validation", " or a larger val_fraction");
  if (job.objective.needs_reference()) {
    const bool several = packing_ == Packing::pack;
    references_ = std::make_unique<ReferenceTable>(several ? rows_ * length_ : rows_,
                                                   places_of_answers(parts_[0].samples),
                                                   places_of_answers(parts_[1].samples));
  }
}

ReferencePlaces PackedDataset::places_of_answers(const PackedSamples& samples) const {
  ReferencePlaces all;
  std::vector<int32_t> places;
  for (int64_t s = 0; s < samples.samples(); ++s) {
    places.clear();
    const std::span<const DocumentPart> parts = samples.sample(s);
    int32_t begin = 0;
    for (size_t g = 0; g < parts.size(); g += rows()) {
      for (int32_t row = 0; row < rows_; ++row)
        places.push_back(packing_ == Packing::pack ? row * length_ + begin : row);
      begin += longest_of(parts.subspan(g, rows()));
    }
    all.add_sample(places);
  }
  return all;
}

void PackedDataset::check_samples(Split split, std::string_view name,
                                  std::string_view advice) const {
  if (samples(split) > 0) return;
  const std::string paths = names_of_files(files(own_validation_ ? split : Split::train).paths);
  if (part(split).counts.without_target > 0)
    fail_user(
        "the {} data have no document with a token that counts in the loss among its first {}, by "
        "FILE.targets: {}: give a larger dstrain.data.seq_len, or other documents{}",
        name, length_, paths, advice);
  fail_user("the {} data have no document of two tokens or more: {}: give more documents{}", name,
            paths, advice);
}

int32_t PackedDataset::training_sources() const {
  return static_cast<int32_t>(sources_.size()) - (own_validation_ ? 1 : 0);
}

PackedDataset::Part PackedDataset::make_part(const Job& job, int32_t first, int32_t end,
                                             int64_t from, int64_t to, bool random) const {
  Part part;
  std::vector<DocumentPart> documents;
  int64_t before = 0;  // tokens of the sources that came before
  for (int32_t s = first; s < end; ++s) {
    const Source& source = sources_[static_cast<size_t>(s)];
    check(source.documents.documents() % rows_ == 0, "{} has half a sample of two answers",
          source.tokens->file().path());
    for (int64_t d = 0; d < source.documents.documents(); d += rows_) {
      const int64_t begin = before + source.documents.begin(d);
      if (begin >= from && begin < to) add_sample(job, s, d, documents, part.counts);
    }
    before += source.tokens->tokens();
  }
  part.samples = PackedSamples(std::move(documents), length_, packing_ == Packing::pack, rows_);
  const int64_t samples = part.samples.samples();
  if (samples > 0) part.order.emplace(samples, random, job.seed);
  return part;
}

void PackedDataset::add_sample(const Job& job, int32_t source, int64_t document,
                               std::vector<DocumentPart>& documents, Counts& counts) const {
  const DocumentFile& file = sources_[static_cast<size_t>(source)].documents;
  const size_t before = documents.size();
  for (int64_t d = document; d < document + rows_; ++d)
    if (!add(job, source, file.begin(d), file.begin(d + 1), documents, counts))
      return documents.resize(before);
}

int64_t PackedDataset::sample_at(Split split, int64_t place) const {
  return part(split).order->sample_at(place);
}

bool PackedDataset::add(const Job& job, int32_t source, int64_t begin, int64_t end,
                        std::vector<DocumentPart>& parts, Counts& counts) const {
  const TokenSource& of = *sources_[static_cast<size_t>(source)].tokens;
  int64_t tokens = end - begin;
  if (tokens < 2) {
    ++counts.too_short;
    return false;
  }
  const bool longer = tokens > length_;
  if (longer) {
    if (job.data.too_long == TooLong::error)
      fail_user(
          "the document at token {} of {} has {} tokens, and a sample {}: give a larger "
          "dstrain.data.seq_len, or dstrain.data.too_long \"cut\" or \"drop\"",
          begin, of.file().path(), tokens, length_);
    if (job.data.too_long == TooLong::drop) {
      ++counts.dropped;
      return false;
    }
    tokens = length_;
  }
  if (!has_target(of, begin + 1, begin + tokens)) {
    ++counts.without_target;
    return false;
  }
  if (longer) ++counts.cut;
  parts.push_back({.source = source, .tokens = static_cast<int32_t>(tokens), .begin = begin});
  return true;
}

void PackedDataset::write(std::span<const DocumentPart> parts, size_t row, const Sample& to) const {
  int32_t begin = 0;
  for (size_t g = 0; g < parts.size(); g += rows()) {
    const int32_t end = begin + longest_of(parts.subspan(g, rows()));
    write_document(parts[g + row], begin, to);
    write_padding(begin + parts[g + row].tokens, end, to);
    begin = end;
  }
  write_padding(begin, length_, to);
}

void PackedDataset::write_document(const DocumentPart& part, int32_t begin,
                                   const Sample& to) const {
  const int32_t end = begin + part.tokens, last = end - 1;
  // The last token has no target, and the file may end with it.
  const Source& source = sources_[static_cast<size_t>(part.source)];
  source.tokens->read(part.begin, part.tokens - 1, to.ids + begin, to.labels + begin);
  to.ids[last] = to.labels[last - 1];
  to.labels[last] = -1;
  source.tokens->ignore(part.begin + 1, part.tokens - 1, to.labels + begin);
  if (objective_.scores_answers()) {
    std::fill(to.labels + begin, to.labels + last, -1);
    to.labels[last] = to.ids[last];
  }
  to.tell(begin, end);
  if (to.mask) std::fill(to.mask + begin, to.mask + end, 1);
  if (!to.teacher.ids) return;
  const TeacherInputs teacher = to.teacher.behind(begin);
  source.teacher->read(part.begin, part.tokens, to.labels + begin, ids_, teacher.ids,
                       teacher.log_probs);
}

void PackedDataset::write_padding(int32_t begin, int32_t end, const Sample& to) const {
  std::fill(to.ids + begin, to.ids + end, 0);
  std::fill(to.labels + begin, to.labels + end, -1);
  to.tell(begin, end);
  if (to.mask) std::fill(to.mask + begin, to.mask + end, 0);
  if (to.teacher.ids) to.teacher.behind(begin).clear(end - begin);
}

bool PackedDataset::is_desirable(const PackedSamples& samples, int64_t sample) const {
  const DocumentPart& part = samples.sample(sample)[0];
  const DataFile* const file = sources_[static_cast<size_t>(part.source)].tokens->targets_file();
  if (!file) return true;
  const unsigned char* const marks = file->checked(part.begin, part.tokens);
  return std::find(marks, marks + part.tokens, kUndesirable) == marks + part.tokens;
}

void PackedDataset::read(Split split, int64_t first, int64_t count,
                         std::span<const InputTensor> inputs) const {
  const Part& from = part(split);
  check(from.order.has_value(), "a part without samples is read");
  const auto needed = [&](InputRole role) {
    return static_cast<int32_t*>(samples_in(inputs, role, count, rows_ * length_));
  };
  const auto wanted = [&](InputRole role) {
    return std::ranges::find(inputs, role, &InputTensor::role) == inputs.end() ? nullptr
                                                                               : needed(role);
  };
  Sample to{.ids = needed(InputRole::token_ids),
            .labels = needed(InputRole::labels),
            .documents = wanted(InputRole::documents),
            .positions = wanted(InputRole::positions),
            .mask = wanted(InputRole::mask),
            .teacher = TeacherInputs(inputs, count, length_, objective_.teacher_top_k)};
  check(packing_ != Packing::pack || to.documents || to.positions,
        "documents are packed into a batch that does not tell them apart");
  const int64_t references_of_sample = references_ ? references_->width() : 0;
  float* references = references_ ? static_cast<float*>(samples_in(inputs, InputRole::reference,
                                                                   count, references_of_sample))
                                  : nullptr;
  float* desirable = objective_.rates_answers()
                         ? static_cast<float*>(samples_in(inputs, InputRole::desirable, count, 1))
                         : nullptr;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = from.order->sample_at(first + i);
    if (desirable) *desirable++ = is_desirable(from.samples, sample) ? 1 : 0;
    for (size_t row = 0; row < rows(); ++row) {
      write(from.samples.sample(sample), row, to);
      to.move_by(length_);
    }
    if (references) references_->write(split, sample, references + i * references_of_sample);
  }
  for (const Source& source : sources_)
    source.each_file([](const DataFile& file) { file.check_whole(); });
}

uint64_t PackedDataset::checksum(size_t first, size_t end) const {
  std::vector<uint64_t> of_files;
  for (size_t s = first; s < end; ++s) {
    sources_[s].each_file(
        [&of_files](const DataFile& file) { of_files.push_back(file.checksum()); });
    if (sources_[s].tokens->bare_width() == 4) of_files.push_back(4);
  }
  return checksum_of(of_files.data(), static_cast<int64_t>(of_files.size() * sizeof(uint64_t)));
}

uint64_t PackedDataset::fingerprint() const {
  if (!fingerprint_) fingerprint_ = checksum(0, static_cast<size_t>(training_sources()));
  return *fingerprint_;
}

uint64_t PackedDataset::validation_fingerprint() const {
  return own_validation_ ? checksum(sources_.size() - 1, sources_.size()) : 0;
}

SplitFiles PackedDataset::files(Split split) const {
  SplitFiles result;
  const auto trained = static_cast<size_t>(training_sources());
  const size_t begin = split == Split::train ? 0 : trained,
               end = split == Split::train ? trained : sources_.size();
  for (size_t s = begin; s < end; ++s) {
    result.paths.push_back(sources_[s].tokens->file().path());
    result.bytes += sources_[s].tokens->file().bytes();
  }
  return result;
}

void PackedDataset::check_unchanged() const {
  for (const Source& source : sources_)
    source.each_file([](const DataFile& file) { file.check_unchanged(); });
}

std::string PackedDataset::balance() const {
  const PackedSamples& samples = parts_[0].samples;
  const int64_t all = samples.samples();
  int64_t desirable = 0;
  for (int64_t s = 0; s < all; ++s) desirable += is_desirable(samples, s) ? 1 : 0;
  const double others = static_cast<double>(all - desirable) * objective_.undesirable_weight;
  std::string text = fmt::format(", {} of them desirable", desirable);
  if (others > 0)
    text += fmt::format(", which weigh {:.3g} times as much as the others",
                        static_cast<double>(desirable) * objective_.desirable_weight / others);
  return text;
}

std::string PackedDataset::summary() const {
  const Part& training = parts_[0];
  const PackedSamples& samples = training.samples;
  const std::vector<std::string> paths = files(Split::train).paths;
  const bool packs_pairs = objective_.has_pairs() && packing_ == Packing::pack;
  const bool is_pair = objective_.has_pairs() && !packs_pairs;
  std::string text = fmt::format(
      "{}: {}, {}; {} in {} of {}, {:.1f} % full",
      paths.size() == 1 ? paths.front() : names_of_files(paths), counted(samples.tokens(), "token"),
      vocabulary_.size_text(),
      packs_pairs ? counted(samples.groups(), "pair") : counted(samples.documents(), "document"),
      counted(samples.samples(), is_pair ? "training pair" : "training sample"), length_,
      100 * static_cast<double>(samples.tokens()) /
          (static_cast<double>(samples.samples() * rows_) * static_cast<double>(length_)));
  if (objective_.rates_answers()) text += balance();
  const Counts& counts = training.counts;
  if (counts.cut > 0) text += fmt::format(", {} cut to it", counted(counts.cut, "longer one"));
  if (counts.dropped > 0)
    text += fmt::format(", {} left out", counted(counts.dropped, "longer one"));
  if (counts.too_short > 0)
    text +=
        fmt::format(", {} of less than two tokens left out", counted(counts.too_short, "document"));
  if (counts.without_target > 0)
    text += fmt::format(", {} without a target in the first {} tokens left out",
                        counted(counts.without_target, "document"), length_);
  const int64_t validation = parts_[1].samples.samples();
  std::string remarks;
  for (const Source& source : sources_) {
    remarks += remark_text(*source.tokens);
    if (source.teacher) remarks += source.teacher->remark_text();
  }
  if (validation == 0) return text + ", none for validation" + remarks;
  text += fmt::format(", {} for validation", validation);
  if (own_validation_) text += fmt::format(" from {}", sources_.back().tokens->file().path());
  return text + remarks;
}

}  // namespace dstrain
