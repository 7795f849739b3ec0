// WeightsReader: the weights of a model in safetensors files (docs/formats.md), read a piece at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/config/model/weight_map.h"
#include "runtime/storage/state.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {

class WeightsReader {
 public:
  // Opens a file, or the files of an index. `weights`: names, shapes and parts (mapped()); they need no local tensors.
  // `names`: what the files may have otherwise. Throws one UserError that lists all missing and superfluous tensors and
  // all wrong shapes.
  WeightsReader(const std::string& path, const StateRegister& weights,
                const ForeignNames& names = {});
  WeightsReader(const WeightsReader&) = delete;
  WeightsReader& operator=(const WeightsReader&) = delete;

  // Returns the weights in the order in which the files have their elements, so that a drive reads ahead.
  std::vector<size_t> in_file_order() const;
  // Reads elements [begin, begin + count) of a weight to `to` as f32; `weight`: its index in the register. Of a part of the
  // weight they are elements of the part's memory, and padding becomes zeros. Where these are short pieces of many rows,
  // whole rows are read; else nothing but the elements is. Throws UserError.
  void read(size_t weight, int64_t begin, int64_t count, float* to, const TensorPart& part = {});

 private:
  // Reads runs that have parts of rows: the first one of the list, and those behind it that one read takes along. Returns
  // how many. `weight`: where element 0 would be.
  size_t read_rows(std::span<const FileRun> runs, float* weight);
  void scatter(std::span<const FileRun> columns, float* weight) const;
  void read_elements(size_t tensor, int64_t first, int64_t count, float* to);

  WeightFiles files_;
  WeightLayout layout_;
  std::vector<WeightFiles::Found> tensors_;  // as layout_.tensors()
  std::vector<uint16_t> scratch_;
  std::vector<float> together_;  // elements that are apart in the weight
};

}  // namespace dstrain
