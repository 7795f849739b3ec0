// TokenDataset: samples of T tokens of one or more sequences, whose end is the validation part unless that is a sequence
// of its own. Sample i of a part's piece of a sequence is its tokens i*T .. i*T+T, the last of which is a target only.
// Pieces share no token, and samples do not cross them; samples are counted through all pieces of a part. A model that
// wants features too gets generated ones, sample i of a part always the same.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/generated_features.h"
#include "runtime/data/sample_order.h"
#include "runtime/data/teacher/teacher_inputs.h"
#include "runtime/data/token_source.h"

namespace dstrain {

class TokenDataset : public Dataset {
 public:
  // `files`: at least one, of one vocabulary. `validation`: the file for validation; null: it is the end of the others.
  // Throws UserError if a part that `job` uses is too short for one sample, or has an id that is not below
  // job.model.vocabulary().
  TokenDataset(const Job& job, std::vector<std::unique_ptr<TokenSource>> files,
               std::unique_ptr<TokenSource> validation);

  int64_t samples(Split split) const override { return part(split).samples; }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }
  uint64_t fingerprint() const override;
  SplitFiles files(Split split) const override;
  uint64_t validation_fingerprint() const override;
  void check_unchanged() const override;
  std::string summary() const override;

 private:
  // What a part has of a sequence.
  struct Piece {
    TokenSource* source = nullptr;
    const TeacherFile* teacher = nullptr;  // null: there is none
    int64_t begin = 0, tokens = 0, samples = 0;
    int64_t first_sample = 0;  // the number of its first sample in the part
  };
  struct Part {
    std::vector<Piece> pieces;  // in order
    int64_t tokens = 0, samples = 0;
    std::optional<SampleOrder> order;  // if there is a sample
  };

  const Part& part(Split split) const { return parts_[split == Split::validation]; }
  Part make_part(std::vector<Piece> pieces, bool random, uint64_t seed) const;
  // Returns what the files have of the tokens [begin, end) of all of them.
  std::vector<Piece> pieces_of(int64_t begin, int64_t end) const;
  void check_parts(const Job& job) const;
  void check_vocabulary(const Job& job);
  // Counts the training samples without a token that counts in the loss. Throws UserError if there is no other.
  void count_targets();
  void read_tokens(const Part& from, int64_t place, int32_t* ids, int32_t* labels,
                   const TeacherInputs& teacher) const;
  // Returns "a.txt: 70 characters", or of several "3 files (a.bin, b.bin, c.bin): 70 tokens".
  std::string files_text() const;

  std::vector<std::unique_ptr<TokenSource>> files_;
  std::vector<TeacherFile> teachers_;        // of the files, or none
  std::unique_ptr<TokenSource> validation_;  // null: the end of the files
  int64_t block_, tokens_ = 0;               // tokens: of the files
  int64_t top_k_, ids_ = 0;     // of a teacher: tokens of a place, and what they are below
  int64_t without_target_ = 0;  // training samples
  std::optional<GeneratedFeatures> features_;
  mutable std::optional<uint64_t> fingerprint_;
  Vocabulary vocabulary_;
  Part parts_[2];
};

}  // namespace dstrain
