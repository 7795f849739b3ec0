// ArrayDataset: samples that are rows of arrays, for models whose inputs are arrays of data files. The end of the data is
// the validation part, unless that has files of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/config/job.h"
#include "runtime/data/arrays/array_table.h"
#include "runtime/data/dataset.h"
#include "runtime/data/sample_order.h"

namespace dstrain {

class ArrayDataset : public Dataset {
 public:
  // Opens the arrays of the job, whose model reads arrays. Throws UserError if there are none, if they are not what the
  // model reads (ArrayTable), if a part that the job uses has no sample, or if a sample that it uses has a value that the
  // dtype of its input cannot hold.
  explicit ArrayDataset(const Job& job);

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
  // The samples [begin, begin + samples) of a table.
  struct Part {
    const ArrayTable* table = nullptr;
    int64_t begin = 0, samples = 0;
    std::optional<SampleOrder> order;  // if there is a sample
  };

  const Part& part(Split split) const { return parts_[split == Split::validation]; }
  void check_parts(const Job& job) const;

  ArrayTable table_;
  std::optional<ArrayTable> validation_;  // absent: the end of the table
  Part parts_[2];
  Vocabulary vocabulary_;
  mutable std::optional<uint64_t> fingerprint_;
};

}  // namespace dstrain
