// WeightsReader: the weights of a model in safetensors files (docs/formats.md), read a piece at a time by any number of
// threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/config/family/weight_map.h"
#include "runtime/storage/state.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {

class WeightsReader {
 public:
  // Opens a file, or the files of an index. `weights`: names, shapes and parts (mapped()); they need no local tensors.
  // `names`: what the files may have otherwise; rows that a grown table lacks there are read as the mean of those that it
  // has, and a fresh tensor that is not there is not read. Throws one UserError that lists all missing and superfluous tensors and all wrong shapes.
  WeightsReader(const std::string& path, const StateRegister& weights,
                const ForeignNames& names = {});
  WeightsReader(const WeightsReader&) = delete;
  WeightsReader& operator=(const WeightsReader&) = delete;

  // Returns the weights that the files have, in the order in which they have their elements, so that a drive reads ahead.
  std::vector<size_t> in_file_order() const;
  // What a thread reads through.
  struct Buffers {
    std::vector<uint16_t> narrow;
    std::vector<uint8_t> bytes;
    std::vector<float> together;  // elements that are apart in the weight
  };
  // Reads elements [begin, begin + count) of a weight to `to` as f32; `weight`: its index in the register. Of a part of the
  // weight they are elements of the part's memory, and padding becomes zeros. Where these are short pieces of many rows,
  // whole rows are read; else nothing but the elements is. Threads that read at the same time have a `buffers` each.
  // Throws UserError.
  void read(size_t weight, int64_t begin, int64_t count, float* to, Buffers& buffers,
            const TensorPart& part = {}) const;
  // Returns whether elements of the weight that follow each other do so in the files too, so that reading it in pieces
  // reads nothing twice.
  bool reads_in_pieces(size_t weight, const TensorPart& part) const;

 private:
  // Reads runs that have parts of rows: the first one of the list, and those behind it that one read takes along. Returns
  // how many. `weight`: where element 0 would be.
  size_t read_rows(std::span<const FileRun> runs, float* weight, Buffers& buffers) const;
  // Reads elements of a tensor of the layout, and of the file's tensor.
  void read_elements(size_t tensor, int64_t first, int64_t count, float* to,
                     Buffers& buffers) const;
  void read_stored(size_t tensor, int64_t first, int64_t count, float* to, Buffers& buffers) const;
  // Returns the mean row of a tensor, which is computed once.
  const std::vector<float>& mean_row(size_t tensor) const;

  WeightFiles files_;
  WeightLayout layout_;
  std::vector<WeightFiles::Found> tensors_;  // as layout_.tensors()
  std::vector<WeightFiles::Found> scales_;   // as layout_.tensors(): of weights of 8-bit floats
  mutable std::mutex making_mean_;
  mutable std::vector<std::vector<float>> mean_rows_;  // as layout_.tensors(); empty: not asked for
};

}  // namespace dstrain
