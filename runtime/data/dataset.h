// Dataset: where a step's samples come from. A sample is a pure function of its index; which sample
// stands at which place of a batch is a pure function of (seed, global counter), so nothing about
// data has to be saved but the step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/config/job.h"
#include "runtime/core/tensor.h"
#include "runtime/data/vocabulary.h"

namespace dstrain {

enum class Split { train, validation };

class Dataset {
 public:
  virtual ~Dataset() = default;
  // Samples in the split (the benchmark's are endless: 2^40).
  virtual int64_t samples(Split split) const = 0;
  // Writes `count` samples, first the one at place `first` of the order of `split`, into `inputs`
  // ((count,T) i32 ids, or (count,in_size) f32) and `targets` (i32). Allocates nothing.
  virtual void read(Split split, int64_t first, int64_t count, Tensor inputs,
                    Tensor targets) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  // Of all bytes that samples are made of, read at the first call; 0 where samples are made from the
  // seed alone.
  virtual uint64_t fingerprint() const { return 0; }
  // Throws RunError where what samples are made of is no longer what it was when it was opened.
  virtual void check_unchanged() const {}
  // One line for the log: "input.txt (char): 1115394 tokens, 65 characters; 3921 training samples of 256".
  virtual std::string summary() const { return "generated samples"; }
};

// Opens (memory-maps) the data of `job` and checks all of it that a run will touch: present, long
// enough for a sample in each split that is used, every id below the vocabulary (file and byte
// offset in the error). Throws UserError.
std::unique_ptr<Dataset> open_dataset(const Job& job);

}  // namespace dstrain
