#include "runtime/data/arrays/array_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/arrays/npy.h"

namespace dstrain {
namespace {

std::string shape_text(const std::vector<int64_t>& sizes) {
  return fmt::format("({})", fmt::join(sizes, ", "));
}

// Returns the names of a shard's arrays, at most some of them: "x, y, z and 3 more".
std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t most = 12;
  std::vector<std::string> shown;
  for (const std::string& name : names)
    if (shown.size() < most) shown.push_back(shown_text(name));
  const size_t others = names.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     others > 0 ? fmt::format(" and {} more", others) : "");
}

std::vector<std::string> names_of(const ArrayShard& shard) {
  std::vector<std::string> names;
  for (const StoredArray& array : shard.arrays) names.push_back(array.name);
  return names;
}

}  // namespace

ArrayTable::ArrayTable(const std::vector<std::string>& paths, const ModelConfig& model) {
  for (const ModelInput& input : model.family().inputs) {
    Column column{.input = std::string(input.name),
                  .dtype = input.dtype,
                  .whole = model.is_whole(input.name),
                  .sizes = model.sizes_of(input),
                  .arrays = {}};
    for (const int64_t size : column.sizes) column.elements *= size;
    columns_.push_back(std::move(column));
  }
  for (const std::string& path : paths) shards_.push_back(open_array_shard(path));
  for (const ArrayShard& shard : shards_) add_shard(shard);
}

void ArrayTable::add_shard(const ArrayShard& shard) {
  std::vector<const StoredArray*> found;
  for (const Column& column : columns_) found.push_back(shard.find(column.input));
  if (std::ranges::count(found, nullptr) > 0)
    if (const std::vector<const StoredArray*> numbered = shard.numbered();
        numbered.size() >= columns_.size())
      std::copy_n(numbered.begin(), columns_.size(), found.begin());
  std::vector<std::string> missing;
  for (size_t i = 0; i < found.size(); ++i)
    if (found[i] == nullptr) missing.push_back(columns_[i].input);
  if (!missing.empty()) {
    const bool alone = shard.arrays.size() == 1 && shard.path.ends_with(".npy");
    fail_user(
        "the data {} lack the {} {}, and have {}: the model reads {}; give the arrays these names, "
        "or the numbers 0, 1, ... in this order{}",
        shard.path, missing.size() == 1 ? "array" : "arrays", names_text(missing),
        shard.arrays.empty() ? "none" : names_text(names_of(shard)), inputs_text(),
        alone ? ", and name the folder that the .npy files of all of them lie in" : "");
  }
  for (size_t i = 0; i < found.size(); ++i) check_array(columns_[i], *found[i], shard);
  const int64_t samples = samples_of(shard, found);
  if (samples > (int64_t{1} << 60) - first_.back())
    fail_user("the data have more than 2^60 samples, at {}", shard.path);
  first_.push_back(first_.back() + samples);
  for (size_t i = 0; i < found.size(); ++i) columns_[i].arrays.push_back(found[i]);
}

int64_t ArrayTable::samples_of(const ArrayShard& shard,
                               const std::vector<const StoredArray*>& found) const {
  const StoredArray* first = nullptr;
  for (size_t i = 0; i < found.size(); ++i) {
    if (columns_[i].whole) continue;
    if (first == nullptr) first = found[i];
    if (found[i]->shape.front() != first->shape.front())
      fail_user(
          "the data {}: the array {} has {}, and {} has {}: axis 0 of every array is the samples",
          shard.path, shown_text(first->name), counted(first->shape.front(), "sample"),
          shown_text(found[i]->name), found[i]->shape.front());
  }
  if (first == nullptr) return 1;
  if (first->shape.front() == 0)
    fail_user("the data {} have no sample: their arrays are empty", shard.path);
  return first->shape.front();
}

void ArrayTable::check_array(const Column& column, const StoredArray& array,
                             const ArrayShard& shard) const {
  const std::string name = shown_text(array.name);
  if (column.whole && array.shape != column.sizes)
    fail_user(
        "the data {}: the array {} has the shape {}, and the model's input {}, which "
        "dstrain.data.whole names, wants {}: it has no axis of samples",
        shard.path, name, shape_text(array.shape), column.input, shape_text(column.sizes));
  if (!column.whole &&
      (array.shape.empty() || !std::equal(array.shape.begin() + 1, array.shape.end(),
                                          column.sizes.begin(), column.sizes.end())))
    fail_user(
        "the data {}: the array {} has the shape {}, and the model's input {} wants (samples{}{}): "
        "axis 0 is the samples",
        shard.path, name, shape_text(array.shape), column.input, column.sizes.empty() ? "" : ", ",
        fmt::join(column.sizes, ", "));
  if (!array.type)
    fail_user("the data {}: the array {} has elements of type {}, which models do not read: {}",
              shard.path, name, shown_text(array.type_name), descr_advice(array.type_name));
  if (array.fortran_order)
    fail_user(
        "the data {}: the array {} is in Fortran order, and samples must lie one after another: "
        "save np.ascontiguousarray({})",
        shard.path, name, name);
}

void ArrayTable::check_values(int64_t begin, int64_t end) const {
  for (const Column& column : columns_) {
    const bool sure = std::ranges::none_of(column.arrays, [&](const StoredArray* array) {
      return may_not_fit(*array->type, column.dtype);
    });
    if (sure) continue;
    std::atomic<int64_t> first{end};  // the first sample with such a value
    run_ranges(thread_count(), end - begin, [&](int64_t from, int64_t to) {
      for (int64_t sample = begin + from; sample < std::min(begin + to, first.load()); ++sample) {
        const Row row = row_of(sample);
        if (column.whole && row.row > 0 && sample > begin) continue;  // it was the one before
        if (first_unfit(*column.arrays[row.shard]->type, elements(column, row), column.elements,
                        column.dtype) < 0)
          continue;
        int64_t known = first.load();
        while (sample < known && !first.compare_exchange_weak(known, sample)) {
        }
        return;
      }
    });
    for (const ArrayShard& shard : shards_)
      for (const auto& file : shard.files) file->check_whole();
    if (first == end) continue;
    const Row row = row_of(first);
    fail_user("{}", unfit_text(column, row,
                               first_unfit(*column.arrays[row.shard]->type, elements(column, row),
                                           column.elements, column.dtype)));
  }
}

size_t ArrayTable::column_of(std::string_view input) const {
  const auto found = std::ranges::find(columns_, input, &Column::input);
  check(found != columns_.end(), "the data have no array for the input {}", input);
  return static_cast<size_t>(found - columns_.begin());
}

ArrayTable::Row ArrayTable::row_of(int64_t sample) const {
  const auto behind = std::ranges::upper_bound(first_, sample);
  const auto shard = static_cast<size_t>(behind - first_.begin()) - 1;
  return {shard, sample - first_[shard]};
}

const unsigned char* ArrayTable::elements(const Column& column, Row row) const {
  const StoredArray& array = *column.arrays[row.shard];
  const int64_t bytes = column.elements * size_of(*array.type);
  return array.file->checked(array.begin + (column.whole ? 0 : row.row * bytes), bytes);
}

void ArrayTable::read(size_t column, int64_t sample, const Tensor& to, int64_t row) const {
  const Column& from = columns_[column];
  const Row place = row_of(sample);
  auto* const out = static_cast<std::byte*>(to.data) + row * from.elements * size_of(to.dtype);
  const int64_t unfit = convert_elements(*from.arrays[place.shard]->type, elements(from, place),
                                         from.elements, to.dtype, out);
  if (unfit >= 0) fail_run("{}", unfit_text(from, place, unfit));
}

std::string ArrayTable::unfit_text(const Column& column, Row row, int64_t element) const {
  const StoredArray& array = *column.arrays[row.shard];
  const unsigned char* const at = elements(column, row) + element * size_of(*array.type);
  return fmt::format(
      "the data {}: {}the array {} has {} as element {}, and the model reads it as {}, expected {}",
      array.file->path(), column.whole ? "" : fmt::format("sample {} of ", row.row),
      shown_text(array.name), element_text(*array.type, at), element, name_of(column.dtype),
      column.dtype == DType::i32 ? "whole numbers from -2147483648 to 2147483647"
                                 : "values up to 3.4e38");
}

std::string ArrayTable::inputs_text() const {
  std::vector<std::string> list;
  for (const Column& column : columns_)
    list.push_back(
        fmt::format("{} {} {}", column.input, name_of(column.dtype), shape_text(column.sizes)));
  return fmt::format("{}", fmt::join(list, ", "));
}

std::string ArrayTable::arrays_text() const {
  std::vector<std::string> list;
  for (const Column& column : columns_) {
    const StoredArray& array = *column.arrays.front();
    list.push_back(fmt::format("{}{} {} {}", shown_text(array.name),
                               array.name == column.input ? "" : " (" + column.input + ")",
                               shape_text(column.sizes), name_of(*array.type)));
  }
  return fmt::format("{}", fmt::join(list, ", "));
}

std::vector<std::string> ArrayTable::unread() const {
  std::vector<std::string> names;
  for (const StoredArray& array : shards_.front().arrays)
    if (std::ranges::none_of(columns_,
                             [&](const Column& column) { return column.arrays.front() == &array; }))
      names.push_back(array.name);
  return names;
}

}  // namespace dstrain
