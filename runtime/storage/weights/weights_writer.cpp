#include "runtime/storage/weights/weights_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <system_error>
#include <tuple>
#include <utility>

#include "runtime/core/convert_floats.h"
#include "runtime/core/error.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

SafetensorsType weights_type(DType dtype) {
  if (dtype == DType::f32) return {"F32", 4};
  return dtype == DType::bf16 ? SafetensorsType{"BF16", 2} : SafetensorsType{"F16", 2};
}

std::vector<int64_t> dims_in_file(const Shape& shape) {
  return {shape.dims.begin(), shape.dims.begin() + shape.rank};
}

constexpr std::string_view kSafetensors = ".safetensors";

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Returns whether the file is that of a model, beside which an index may be.
bool is_model_file(const std::string& path) {
  return fs::path(path).filename() == kWeightsName;
}

// Returns the names of the files of earlier weights that readers of `path` would take, without the index.
std::vector<std::string> earlier_files(const std::string& path) {
  std::vector<std::string> names{fs::path(path).filename().string()};
  const std::string index = (fs::path(path).parent_path() / kIndexName).string();
  std::error_code none;
  if (!is_model_file(path) || !fs::exists(index, none)) return names;
  try {
    for (const std::string& file : files_of_weights(index))
      if (file.ends_with(kSafetensors)) names.push_back(fs::path(file).filename().string());
  } catch (const UserError&) {  // no index that a reader could take
  }
  return names;
}

}  // namespace

WeightsWriter::WeightsWriter(std::string path, const StateRegister& weights,
                             const WeightsFormat& format)
    : path_(std::move(path)), layout_(weights) {
  for (const FileTensor& tensor : layout_.tensors())
    positions_.push_back({.dtype = format.dtype ? format.dtype(tensor.name) : DType::f32});
  for (size_t i = 0; i < weights.size(); ++i)
    progress_[weights[i].name] = {.index = i, .elements = weights[i].global_shape.elements()};
  divide(format);
}

void WeightsWriter::divide(const WeightsFormat& format) {
  std::vector<std::vector<size_t>> shards(1);
  int64_t bytes = 0;  // of the last shard
  for (size_t t = 0; t < positions_.size(); ++t) {
    const int64_t more = layout_.tensors()[t].shape.elements() * size_of(positions_[t].dtype);
    if (format.as_package && !shards.back().empty() && bytes + more > format.shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().push_back(t);
    bytes += more;
  }
  const std::string last = fs::path(path_).filename().string();
  for (size_t i = 0; i < shards.size(); ++i)
    begin_file(std::move(shards[i]),
               shards.size() == 1
                   ? last
                   : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()),
               format.as_package, i + 1 == shards.size() ? format.kept : std::vector<KeptTensor>{});
}

void WeightsWriter::begin_file(std::vector<size_t> tensors, const std::string& name, bool sorted,
                               const std::vector<KeptTensor>& kept) {
  // The package sorts by dtype, the largest first and bf16 before f16, and then by name.
  if (sorted)
    std::ranges::sort(tensors, [this](size_t a, size_t b) {
      const auto key = [this](size_t t) {
        const DType dtype = positions_[t].dtype;
        return std::tuple(dtype == DType::f32    ? 0
                          : dtype == DType::bf16 ? 1
                                                 : 2,
                          std::string_view(layout_.tensors()[t].name));
      };
      return key(a) < key(b);
    });
  std::vector<SafetensorsTensor> list;
  for (const size_t t : tensors)
    list.push_back({.name = layout_.tensors()[t].name,
                    .type = weights_type(positions_[t].dtype),
                    .shape = dims_in_file(layout_.tensors()[t].shape)});
  for (const KeptTensor& tensor : kept)
    list.push_back(
        {.name = tensor.name, .type = safetensors_type(tensor.dtype), .shape = tensor.shape});
  const std::string head = make_safetensors_header(list);
  for (size_t i = 0; i < tensors.size(); ++i) {
    positions_[tensors[i]].file = files_.size();
    positions_[tensors[i]].begin = list[i].begin;
  }
  names_.push_back(name);
  files_.push_back(std::make_unique<NewFile>((fs::path(path_).parent_path() / name).string()));
  files_.back()->write_at(head.data(), static_cast<int64_t>(head.size()), 0);
  for (size_t i = 0; i < kept.size(); ++i)
    files_.back()->write_at(kept[i].bytes.data(), static_cast<int64_t>(kept[i].bytes.size()),
                            list[tensors.size() + i].begin);
}

void WeightsWriter::write(std::string_view name, int64_t begin, const Tensor& values) {
  const auto found = progress_.find(name);
  check(found != progress_.end(), "the weight file {} has no tensor {}", path_, name);
  TensorProgress& progress = found->second;
  const int64_t count = values.elements();
  check(values.dtype == DType::f32, "{} is written as {}, expected f32", name,
        name_of(values.dtype));
  check(begin >= 0 && begin + count <= progress.elements, "slice [{}, {}) of {} is outside of it",
        begin, begin + count, name);
  for (const FileRun& run : layout_.runs(progress.index, begin, count)) {
    float* from = values.as<float>() + (run.begin - begin);
    if (run.stride > 1) {
      together_.resize(static_cast<size_t>(run.count));
      for (int64_t i = 0; i < run.count; ++i)
        together_[static_cast<size_t>(i)] = from[i * run.stride];
      from = together_.data();
    }
    const TensorPosition& position = positions_[run.tensor];
    const void* bytes = from;
    if (position.dtype != DType::f32) {
      rounded_.resize(static_cast<size_t>(run.count));
      convert_floats({from, {run.count}, DType::f32},
                     {rounded_.data(), {run.count}, position.dtype});
      bytes = rounded_.data();
    }
    const int64_t element = size_of(position.dtype);
    files_[position.file]->write_at(bytes, element * run.count, position.begin + element * run.at);
  }
  progress.written += count;
}

void WeightsWriter::complete() {
  for (const auto& [name, progress] : progress_)
    check(progress.written == progress.elements, "{} of {} elements of {} were written to {}",
          progress.written, progress.elements, name, path_);
  for (const std::unique_ptr<NewFile>& file : files_) file->complete();
  if (files_.size() == 1 || index_) return;
  index_ = std::make_unique<NewFile>(beside(kIndexName));
  const std::string text = index_text();
  index_->write_at(text.data(), static_cast<int64_t>(text.size()), 0);
  index_->complete();
}

void WeightsWriter::finish() {
  complete();
  const std::vector<std::string> earlier = earlier_files(path_);
  // Readers take one file, or else the index. An index must never list files of which some are replaced already.
  const auto is_replaced = [this](const std::string& name) {
    return std::ranges::find(names_, name) != names_.end();
  };
  std::error_code error;
  if (index_ && std::ranges::any_of(earlier, is_replaced)) {
    fs::remove(beside(kIndexName), error);
    if (error) fail_run("cannot remove {}: {}", beside(kIndexName), error.message());
    sync_directory(folder_of(path_));
  }
  for (const std::unique_ptr<NewFile>& file : files_) file->commit();
  if (index_)
    index_->commit();
  else if (is_model_file(path_))
    fs::remove(beside(kIndexName), error);
  for (const std::string& name : earlier)
    if (!is_replaced(name)) fs::remove(beside(name), error);
}

std::string WeightsWriter::beside(std::string_view name) const {
  return (fs::path(path_).parent_path() / name).string();
}

std::string WeightsWriter::index_text() const {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::vector<size_t> order(positions_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, {}, [this](size_t t) { return layout_.tensors()[t].name; });
  int64_t elements = 0, bytes = 0;
  for (const size_t t : order) {
    const FileTensor& tensor = layout_.tensors()[t];
    map[tensor.name] = names_[positions_[t].file];
    elements += tensor.shape.elements();
    bytes += tensor.shape.elements() * size_of(positions_[t].dtype);
  }
  const nlohmann::ordered_json index{
      {"metadata", {{"total_parameters", elements}, {"total_size", bytes}}}, {"weight_map", map}};
  return index.dump(2) + "\n";
}

void remove_weights(const std::string& folder) {
  std::vector<std::string> names = earlier_files((fs::path(folder) / kWeightsName).string());
  names.insert(names.begin(), std::string(kIndexName));  // it must not list files that are gone
  for (const std::string& name : names) {
    std::error_code none;
    fs::remove(fs::path(folder) / name, none);
  }
}

}  // namespace dstrain
