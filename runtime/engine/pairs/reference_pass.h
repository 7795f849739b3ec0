// The pass over all samples that measures, with the initial weights of a run, the log-probabilities that its objective
// compares with (TRL's precompute_ref_log_probs).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/config/job.h"
#include "runtime/data/dataset.h"
#include "runtime/data/packing/reference_table.h"
#include "runtime/engine/pairs/reference_file.h"

namespace dstrain {

class ReferencePass {
 public:
  // Computes the micro-batches of all ranks that begin with place `first` of a split's order. Returns the values that the model
  // gives for this rank's samples, as many of each as the table is wide; none where another stage of a pipeline has them.
  // Collective.
  using Measure = std::function<std::vector<float>(Split split, int64_t first, int64_t end)>;

  // The caller keeps all of it alive. The dataset has a table of references. comm: of all ranks, on the host's memory.
  ReferencePass(const Job& job, const Dataset& dataset, Communicator& comm, Measure measure);

  // Fills the dataset's table with what the file of this run, or of the one that it resumes, has, and measures the rest;
  // `may_measure`: the weights are the initial ones. `stopped` is asked on every rank, and ends the pass between two batches.
  // Returns whether the table is full: it is not if the pass was stopped. Throws UserError if values are missing that cannot
  // be measured any more; RunError if they cannot be written. Collective.
  bool fill(bool may_measure, const std::function<bool()>& stopped);

 private:
  bool root() const { return comm_.rank() == 0; }
  int64_t all_samples() const {
    return table_.samples(Split::train) + table_.samples(Split::validation);
  }
  // Takes what rank 0 has read to all ranks. Returns the number of samples.
  int64_t share(std::vector<float> read);
  // Replaces the run's file. Collective.
  void write();
  // The `number`-th sample of the pass: those for training come first, in their order.
  struct Sample {
    Split split{};
    int64_t number = 0;  // in its split
  };
  Sample sample(int64_t number) const;
  // Returns how many values it has.
  size_t values_of(int64_t number) const;
  // Puts its values where they belong.
  void put(int64_t number, const float* values);
  // What this rank asks for behind a batch, and what all have agreed on: to stop, which any rank may ask for and which discards
  // the batch, and to write the file, which rank 0 says.
  struct Wishes {
    bool stop = false, write = false;
  };
  // Measures a batch of samples of one split, from the `number`-th of the pass on. Collective.
  Wishes measure_batch(int64_t number, const Wishes& mine);

  const Job& job_;
  const Dataset& dataset_;
  ReferenceTable& table_;
  Communicator& comm_;
  Measure measure_;
  std::string path_,
      resumed_;       // the files of this run and of the one that it resumes, which may be the same
  ReferenceKey key_;  // on rank 0
  std::vector<float> done_;  // in the order of the pass
  int64_t measured_ = 0;     // how many samples these are of
};

}  // namespace dstrain
