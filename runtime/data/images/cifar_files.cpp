#include "runtime/data/images/cifar_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <system_error>

#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/data/file/data_files.h"

namespace dstrain {
namespace {

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kValues = 3 * kPlane;

std::string name_of_file(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// Returns how many labels the records of a file have, as far as its name and size tell; 0: it is none of CIFAR's.
int64_t labels_of(const std::string& path, int64_t bytes) {
  const std::string name = name_of_file(path);
  const bool fine = name == "train.bin" || name == "test.bin";  // CIFAR-100's names
  if (bytes % (kValues + 1) == 0 && !fine) return 1;
  if (bytes % (kValues + 2) == 0) return 2;
  return bytes % (kValues + 1) == 0 ? 1 : 0;
}

}  // namespace

CifarFiles::CifarFiles(const std::vector<std::string>& paths, const ImageDemand& demand) {
  for (const std::string& path : paths) add(path);
  if (demand.channels != 3 || demand.height != kSide || demand.width != kSide)
    fail_user(
        "the data {} are CIFAR's binary files, whose images are 3 x 32 x 32, and those of the "
        "model "
        "are {} x {} x {}: give folders of PNG or JPEG files, or a model of 3 x 32 x 32",
        names_of_files(paths), demand.channels, demand.height, demand.width);
  held_out_ = static_cast<int64_t>(std::floor(static_cast<double>(samples()) * demand.held_out));
}

void CifarFiles::add(const std::string& path) {
  auto file = std::make_unique<DataFile>(path);
  const int64_t labels = labels_of(path, file->bytes());
  if (labels == 0)
    fail_user(
        "the data file {} has {} bytes, which are no multiple of the {} of a record of CIFAR-10's "
        "binary version (nor of the {} of CIFAR-100's): it is cut short, or another file; images "
        "are data_batch_1.bin to data_batch_5.bin and test_batch.bin, or a folder of classes",
        path, file->bytes(), kValues + 1, kValues + 2);
  if (labels_ != 0 && labels != labels_)
    fail_user("the data file {} is of CIFAR-{}, and {} is of CIFAR-{}: give files of one of them",
              path, labels == 1 ? 10 : 100, files_.front()->path(), labels_ == 1 ? 10 : 100);
  labels_ = labels;
  const int64_t record = kValues + labels, samples = file->bytes() / record;
  for (int64_t i = 0; i < samples; ++i) {
    const int label = *file->checked(i * record + labels - 1, 1);
    if (label >= classes())
      fail_user(
          "the data file {}: record {} has the label {}, and those of CIFAR-{} are below {}: it is "
          "damaged, or another file",
          path, i, label, classes(), classes());
  }
  file->check_whole();
  first_.push_back(first_.back() + samples);
  files_.push_back(std::move(file));
}

const unsigned char* CifarFiles::record(int64_t sample) const {
  const auto behind = std::ranges::upper_bound(first_, sample);
  const auto file = static_cast<size_t>(behind - first_.begin()) - 1;
  const int64_t bytes = kValues + labels_;
  return files_[file]->checked((sample - first_[file]) * bytes, bytes);
}

int32_t CifarFiles::label(int64_t sample) const {
  return record(sample)[labels_ - 1];
}

ImageView CifarFiles::image(int64_t sample, ImageScratch&) const {
  return {.data = record(sample) + labels_,
          .width = kSide,
          .height = kSide,
          .channel = kPlane,
          .row = kSide,
          .pixel = 1};
}

uint64_t CifarFiles::checksum() const {
  std::vector<uint64_t> parts;
  for (const auto& file : files_) parts.push_back(file->checksum());
  return checksum_of(parts.data(), static_cast<int64_t>(parts.size() * sizeof(uint64_t)));
}

SplitFiles CifarFiles::files() const {
  SplitFiles result;
  for (const auto& file : files_) {
    result.paths.push_back(file->path());
    result.bytes += file->bytes();
  }
  return result;
}

void CifarFiles::check_whole() const {
  for (const auto& file : files_) file->check_whole();
}

void CifarFiles::check_unchanged() const {
  for (const auto& file : files_) file->check_unchanged();
}

std::string CifarFiles::text() const {
  return fmt::format("images of CIFAR-{}", classes());
}

std::vector<std::string> cifar_files_of(const std::string& folder, bool validation) {
  namespace fs = std::filesystem;
  std::vector<std::string> found;
  std::error_code none;
  for (fs::directory_iterator at(folder, none), end; !none && at != end; at.increment(none)) {
    const std::string name = at->path().filename().string();
    const bool is_validation = name == "test_batch.bin" || name == "test.bin";
    const bool is_training =
        name == "train.bin" || (name.starts_with("data_batch") && name.ends_with(".bin"));
    if (validation ? is_validation : is_training) found.push_back(at->path().string());
  }
  std::ranges::sort(found);
  return found;
}

}  // namespace dstrain
