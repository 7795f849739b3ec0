// Dataset: the source of a step's samples. A sample is a pure function of its index, and the index at a place
// of a batch is a pure function of (seed, global counter), so that a checkpoint needs no state of the data
// but the step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/input_tensor.h"
#include "runtime/data/vocabulary.h"

namespace dstrain {

// The part of the data.
enum class Split { train, validation };

// Returns the data of the input with this role, which no other has. Throws InternalError if there is none that has `count`
// samples of `elements` in the role's dtype.
void* samples_in(std::span<const InputTensor> inputs, InputRole role, int64_t count,
                 int64_t elements);

class ReferenceTable;

// The files of a part of the data, and their bytes together.
struct SplitFiles {
  std::vector<std::string> paths;
  int64_t bytes = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  // Returns the number of samples in the split; 2^40 for generated samples.
  virtual int64_t samples(Split split) const = 0;
  // Writes the `count` samples from place `first` of the order of `split` into all inputs of the model. Allocates
  // nothing but what decoding compressed images takes.
  virtual void read(Split split, int64_t first, int64_t count,
                    std::span<const InputTensor> inputs) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;
  // Returns a checksum of all files of the training samples, computed at the first call; 0 for generated samples.
  virtual uint64_t fingerprint() const { return 0; }
  // Returns the files of a split's samples; none for generated ones. Those for validation are none, too, where they are
  // the end of the training files.
  virtual SplitFiles files(Split) const { return {}; }
  // Returns the checksum of the file for validation, computed at the first call; 0 if there is none.
  virtual uint64_t validation_fingerprint() const { return 0; }
  // Throws RunError if the data have changed since they were opened.
  virtual void check_unchanged() const {}
  // Returns the table that the inputs with role `reference` are read from; null if samples have none.
  virtual ReferenceTable* references() const { return nullptr; }
  // Returns the number of the sample at a place of a split's order.
  virtual int64_t sample_at(Split, int64_t place) const { return place; }
  // Returns a line for the log: "input.txt: 1115394 characters, vocabulary 65; 3921 training samples of 256".
  virtual std::string summary() const { return "generated samples"; }
};

}  // namespace dstrain
