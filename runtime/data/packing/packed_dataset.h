// PackedDataset: samples of whole documents of token files, several in a sample or one; or where the job compares answers,
// samples of two rows, of which documents 2i and 2i + 1 of a file have the same place: one pair, or several. A token's target is the one that
// follows in its document; the last token of a document, the padding behind the documents of a sample, and tokens whose
// next one does not count by FILE.targets have none. Where answers get a score, the last token of a row alone has a target.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/packing/document_file.h"
#include "runtime/data/packing/pack.h"
#include "runtime/data/packing/reference_table.h"
#include "runtime/data/sample_order.h"
#include "runtime/data/teacher/teacher_inputs.h"
#include "runtime/data/token_source.h"

namespace dstrain {

class PackedDataset : public Dataset {
 public:
  // `job`: its samples have two tokens or more. `files`: at least one, each with its FILE.documents. `validation`: the file
  // for validation; null: it is the documents that begin in the last val_fraction of the tokens. Throws UserError if a
  // part that `job` uses has no sample, if a file has an id that is not below job.model.vocabulary(), and if a document is
  // too long where the job says so.
  PackedDataset(const Job& job, std::vector<std::unique_ptr<TokenSource>> files,
                std::unique_ptr<TokenSource> validation);

  int64_t samples(Split split) const override { return part(split).samples.samples(); }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  uint64_t fingerprint() const override;
  SplitFiles files(Split split) const override;
  uint64_t validation_fingerprint() const override;
  void check_unchanged() const override;
  ReferenceTable* references() const override { return references_.get(); }
  int64_t sample_at(Split split, int64_t place) const override;
  std::string summary() const override;

 private:
  struct Source {
    std::unique_ptr<TokenSource> tokens;
    DocumentFile documents;
    std::optional<TeacherFile> teacher{};
    // Calls `visit` with each of its files.
    template <class Visit>
    void each_file(const Visit& visit) const {
      visit(tokens->file());
      visit(documents.file());
      if (tokens->targets_file()) visit(*tokens->targets_file());
      if (teacher) visit(teacher->file());
    }
  };
  // Documents that are no part as they are.
  struct Counts {
    int64_t cut = 0, dropped = 0;
    // Left out: of less than two tokens; and where no token of the part counts in the loss.
    int64_t too_short = 0, without_target = 0;
  };
  struct Part {
    PackedSamples samples;
    Counts counts;
    std::optional<SampleOrder> order;  // if there is a sample
  };

  const Part& part(Split split) const { return parts_[split == Split::validation ? 1 : 0]; }
  int32_t training_sources() const;
  // Adds the `rows_` documents of a sample that begin with this one, unless one of them is left out.
  void add_sample(const Job& job, int32_t source, int64_t document,
                  std::vector<DocumentPart>& documents, Counts& counts) const;
  // Makes a part of the documents of sources [first, end) that begin at tokens [from, to) of them all.
  Part make_part(const Job& job, int32_t first, int32_t end, int64_t from, int64_t to,
                 bool random) const;
  // Fails if a part has no sample. `advice`: for the message.
  void check_samples(Split split, std::string_view name, std::string_view advice) const;
  // Adds a document, or the beginning of it. Returns whether it is not left out.
  bool add(const Job& job, int32_t source, int64_t begin, int64_t end,
           std::vector<DocumentPart>& parts, Counts& counts) const;
  // Where a sample is written. All but ids and labels may be null.
  struct Sample {
    int32_t *ids = nullptr, *labels = nullptr;
    int32_t *documents = nullptr, *positions = nullptr, *mask = nullptr;
    TeacherInputs teacher{};

    // Says that these tokens are a document. Padding counts as one, too.
    void tell(int32_t begin, int32_t end) const {
      if (documents) std::fill(documents + begin, documents + end, begin);
      if (positions) std::iota(positions + begin, positions + end, 0);
    }
    // Goes on to where another row is, so many elements behind.
    void move_by(int64_t elements) {
      for (int32_t** to : {&ids, &labels, &documents, &positions, &mask})
        if (*to) *to += elements;
      teacher = teacher.behind(elements);
    }
  };
  // Writes a row of a sample: padding behind a document that is shorter than others of its group, and behind the last group.
  void write(std::span<const DocumentPart> parts, size_t row, const Sample& to) const;
  void write_document(const DocumentPart& part, int32_t begin, const Sample& to) const;
  void write_padding(int32_t begin, int32_t end, const Sample& to) const;
  // Returns where the values of answers are among what a model gives for samples.
  ReferencePlaces places_of_answers(const PackedSamples& samples) const;
  size_t rows() const { return static_cast<size_t>(rows_); }
  // Returns whether FILE.targets says that the answer of a sample is desirable.
  bool is_desirable(const PackedSamples& samples, int64_t sample) const;
  // Returns how many samples for training are desirable, and how much they weigh beside the others.
  std::string balance() const;
  uint64_t checksum(size_t first, size_t end) const;

  std::vector<Source> sources_;  // those for training, and behind them that for validation
  bool own_validation_;
  int32_t length_;
  int64_t rows_;  // of a sample
  int64_t ids_;   // of the model
  Objective objective_;
  Packing packing_;
  mutable std::optional<uint64_t> fingerprint_;
  Vocabulary vocabulary_;
  std::array<Part, 2> parts_;
  std::unique_ptr<ReferenceTable> references_;
};

}  // namespace dstrain
