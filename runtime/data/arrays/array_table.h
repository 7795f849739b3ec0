// ArrayTable: the samples of a part of the data: row i of every array that the model reads. Shards come one after another,
// and each has all arrays.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/family/model_config.h"
#include "runtime/core/tensor.h"
#include "runtime/data/arrays/array_shard.h"

namespace dstrain {

class ArrayTable {
 public:
  // Opens the files and folders, at least one, and finds the array of each input of the model, which reads arrays: that
  // of its name, or, where a shard's are numbered, that of its number. Where all inputs are whole (ModelConfig::is_whole), a
  // shard is one sample. Throws UserError if one is missing, has samples of
  // another shape, elements of a type that models do not read, or Fortran order, or if the arrays of a shard have
  // different numbers of samples or none.
  ArrayTable(const std::vector<std::string>& paths, const ModelConfig& model);

  int64_t samples() const { return first_.back(); }
  // Throws UserError if one of the samples [begin, end) has a value that the dtype of its input cannot hold.
  void check_values(int64_t begin, int64_t end) const;
  // Returns the index of an input, by which read() knows it. Throws InternalError if the model has no such input.
  size_t column_of(std::string_view input) const;
  // Writes the sample's elements of the input to row `row` of `to`, whose dtype is the input's. Allocates nothing. Throws
  // RunError if the dtype cannot hold one of them, which check_values() has not seen there.
  void read(size_t column, int64_t sample, const Tensor& to, int64_t row) const;
  // Returns the elements of a sample of an input.
  int64_t elements_of(size_t column) const { return columns_[column].elements; }
  DType dtype_of(size_t column) const { return columns_[column].dtype; }

  const std::vector<ArrayShard>& shards() const { return shards_; }
  // Returns "x (3, 4) f64 and y () i64".
  std::string arrays_text() const;
  // Returns the names of the arrays that no input reads, of the first shard.
  std::vector<std::string> unread() const;

 private:
  // What an input reads of each shard.
  struct Column {
    std::string input;
    DType dtype = DType::f32;
    bool whole = false;          // every sample of a shard has all of its array
    std::vector<int64_t> sizes;  // of a sample
    int64_t elements = 1;        // of a sample
    std::vector<const StoredArray*> arrays;
  };
  // A sample's place.
  struct Row {
    size_t shard = 0;
    int64_t row = 0;
  };

  void add_shard(const ArrayShard& shard);
  // Returns how many samples the shard has whose arrays `found` are, by column.
  int64_t samples_of(const ArrayShard& shard, const std::vector<const StoredArray*>& found) const;
  void check_array(const Column& column, const StoredArray& array, const ArrayShard& shard) const;
  Row row_of(int64_t sample) const;
  const unsigned char* elements(const Column& column, Row row) const;
  // Returns "train.npz: sample 3 of the array y has 3000000000 ...", of the element that a dtype cannot hold.
  std::string unfit_text(const Column& column, Row row, int64_t element) const;
  // Returns "x f32 (3, 4), y i32 ()".
  std::string inputs_text() const;

  std::vector<ArrayShard> shards_;
  std::vector<int64_t> first_{0};  // the first sample of each shard, and behind the last one
  std::vector<Column> columns_;
};

}  // namespace dstrain
