#include "runtime/data/arrays/array_dataset.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/file/data_files.h"

namespace dstrain {
namespace {

constexpr int64_t kAlone = 1 << 15;  // elements that one thread reads sooner than several

ArrayTable open_training(const Job& job) {
  const std::vector<std::string> paths = data_files(job.data.paths);
  if (paths.empty())
    fail_user(
        "there is no data to train on: give a file of arrays with --data or "
        "dstrain.data.path");
  return {paths, job.model};
}

// Calls visit with every file of a table.
template <class Visit>
void each_data_file(const ArrayTable& table, const Visit& visit) {
  for (const ArrayShard& shard : table.shards())
    for (const auto& file : shard.files) visit(*file);
}

uint64_t checksum_of_table(const ArrayTable& table) {
  std::vector<uint64_t> parts;
  each_data_file(table, [&](const DataFile& file) { parts.push_back(file.checksum()); });
  return parts.size() == 1
             ? parts.front()
             : checksum_of(parts.data(), static_cast<int64_t>(parts.size() * sizeof(uint64_t)));
}

SplitFiles files_of(const ArrayTable& table) {
  SplitFiles result;
  each_data_file(table, [&](const DataFile& file) {
    result.paths.push_back(file.path());
    result.bytes += file.bytes();
  });
  return result;
}

// Returns "train.npz", or "3 files (a.npz, b.npz, c.npz)"; a folder counts as a file.
std::string table_text(const ArrayTable& table) {
  std::vector<std::string> paths;
  for (const ArrayShard& shard : table.shards()) paths.push_back(shard.path);
  return paths.size() == 1 ? paths.front() : names_of_files(paths);
}

}  // namespace

ArrayDataset::ArrayDataset(const Job& job) : table_(open_training(job)) {
  if (!job.data.val_path.empty()) validation_.emplace(data_files({job.data.val_path}), job.model);
  const int64_t all = table_.samples();
  const auto held_out =
      validation_
          ? 0
          : static_cast<int64_t>(std::floor(static_cast<double>(all) * job.data.val_fraction));
  parts_[0] = {.table = &table_, .begin = 0, .samples = all - held_out, .order = {}};
  parts_[1] =
      validation_
          ? Part{.table = &*validation_, .begin = 0, .samples = validation_->samples(), .order = {}}
          : Part{.table = &table_, .begin = all - held_out, .samples = held_out, .order = {}};
  check_parts(job);
  for (Part& part : parts_)
    if (part.samples > 0)
      part.order.emplace(part.samples, &part == parts_ && job.data.random_order, job.seed);
  vocabulary_.format = DataFormat::automatic;
}

void ArrayDataset::check_parts(const Job& job) const {
  const auto complain = [&](std::string_view name, std::string_view advice) {
    fail_user(
        "the data {} have {}, of which the {} part has none (val_fraction {}): give more data, "
        "{}",
        table_text(table_), counted(table_.samples(), "sample"), name, job.data.val_fraction,
        advice);
  };
  const Part &training = parts_[0], &validation = parts_[1];
  if (training.samples == 0) complain("training", "or a smaller val_fraction");
  if (validation.samples == 0 && job.eval_interval > 0)
    complain("validation", "a larger val_fraction, or eval_interval 0");
  table_.check_values(0, training.samples);
  const int64_t used = std::min(validation.samples, job.eval_samples);
  validation.table->check_values(validation.begin, validation.begin + used);
}

void ArrayDataset::read(Split split, int64_t first, int64_t count,
                        std::span<const InputTensor> inputs) const {
  const Part& from = part(split);
  check(from.order.has_value(), "a part without samples is read");
  for (const InputTensor& input : inputs) {
    const size_t column = from.table->column_of(input.name);
    const int64_t elements = from.table->elements_of(column);
    check(input.role == InputRole::array && input.tensor.dtype == from.table->dtype_of(column) &&
              input.tensor.elements() == count * elements,
          "{} samples of {} elements are read into {}, which is {} {}", count, elements, input.name,
          name_of(input.tensor.dtype), to_string(input.tensor.shape));
    run_ranges(count * elements > kAlone ? thread_count() : 1, count,
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i)
                   from.table->read(column, from.begin + from.order->sample_at(first + i),
                                    input.tensor, i);
               });
  }
  each_data_file(*from.table, [](const DataFile& file) { file.check_whole(); });
}

void ArrayDataset::check_unchanged() const {
  const auto check = [](const DataFile& file) { file.check_unchanged(); };
  each_data_file(table_, check);
  if (validation_) each_data_file(*validation_, check);
}

uint64_t ArrayDataset::fingerprint() const {
  if (!fingerprint_) fingerprint_ = checksum_of_table(table_);
  return *fingerprint_;
}

uint64_t ArrayDataset::validation_fingerprint() const {
  return validation_ ? checksum_of_table(*validation_) : 0;
}

SplitFiles ArrayDataset::files(Split split) const {
  if (split == Split::train) return files_of(table_);
  return validation_ ? files_of(*validation_) : SplitFiles{};
}

std::string ArrayDataset::summary() const {
  const Part& validation = parts_[1];
  std::string text = fmt::format("{}: arrays {}; {}", table_text(table_), table_.arrays_text(),
                                 counted(parts_[0].samples, "training sample"));
  if (validation_)
    text +=
        fmt::format(", {} for validation from {}", validation.samples, table_text(*validation_));
  else if (validation.samples > 0)
    text += fmt::format(", {} for validation", validation.samples);
  else
    text += ", none for validation";
  std::vector<std::string> unread;
  for (const std::string& name : table_.unread()) unread.push_back(shown_text(name));
  if (!unread.empty())
    text += fmt::format("; no input of the model reads {}", fmt::join(unread, ", "));
  return text;
}

}  // namespace dstrain
