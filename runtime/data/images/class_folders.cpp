#include "runtime/data/images/class_folders.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/images/decode.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdvice =
    "expected a folder for each class, with PNG or JPEG files in it, or CIFAR-10's "
    "data_batch_1.bin "
    "to data_batch_5.bin";

// Returns the entries of a folder that are not hidden, in the order of the bytes of their names.
std::vector<fs::directory_entry> entries_of(const std::string& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (!at->path().filename().string().starts_with(".")) entries.push_back(*at);
  if (error) fail_user("cannot read the folder of images {}: {}", folder, error.message());
  std::ranges::sort(entries, {}, [](const fs::directory_entry& e) { return e.path().string(); });
  return entries;
}

bool is_folder(const fs::directory_entry& entry) {
  std::error_code error;
  return entry.is_directory(error);
}

bool has_image_name(const fs::directory_entry& entry) {
  const std::string ending = lower_case(entry.path().extension().string());
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

std::string names_of_classes(const std::vector<std::string>& names) {
  constexpr size_t most = 12;
  std::vector<std::string> shown;
  for (const std::string& name : names)
    if (shown.size() < most) shown.push_back(shown_text(name));
  const size_t others = names.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     others > 0 ? fmt::format(" and {} more", others) : "");
}

}  // namespace

ClassFolders::ClassFolders(const std::vector<std::string>& folders, const ImageDemand& demand)
    : folders_(folders), demand_(demand) {
  for (const std::string& folder : folders) find_files(folder);
  open_files();
  check_sizes();
  hold_out(demand.held_out);
}

void ClassFolders::find_files(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    fail_user("the images {}: {}; {}", folder,
              fs::exists(folder, error) ? "it is no folder" : "it is not there", kAdvice);
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : entries_of(folder)) {
    if (!is_folder(entry)) continue;
    const auto label = static_cast<int32_t>(names.size());
    names.push_back(entry.path().filename().string());
    const size_t before = files_.size();
    for (const fs::directory_entry& image : entries_of(entry.path().string())) {
      if (is_folder(image))
        fail_user("the class folder {} has the folder {}: {}", entry.path().string(),
                  shown_text(image.path().filename().string()), kAdvice);
      if (has_image_name(image)) files_.push_back({.path = image.path().string(), .label = label});
    }
    if (files_.size() == before)
      fail_user(
          "the class folder {} has no .png, .jpg or .jpeg file: put images of the class in it, or "
          "remove it",
          entry.path().string());
  }
  if (names.empty()) fail_user("the folder {} has no folders: {}", folder, kAdvice);
  if (names.size() == 1)
    fail_user("the folder {} has one class, {}, and there is nothing to tell apart: {}", folder,
              shown_text(names.front()), kAdvice);
  if (names_.empty())
    names_ = std::move(names);
  else if (names_ != names)
    fail_user("the folders {} and {} have different classes: {} and {}", folders_.front(), folder,
              names_of_classes(names_), names_of_classes(names));
}

void ClassFolders::open_files() {
  run_in_turns(thread_count(), static_cast<int64_t>(files_.size()), [this](int64_t i) {
    File& file = files_[static_cast<size_t>(i)];
    const InputFile input(file.path, "the image", "remove it, or what is wrong with it");
    struct stat status {};
    if (::fstat(input.descriptor(), &status) != 0)
      fail_user("cannot look at the image {}: {}", file.path, std::strerror(errno));
    file.bytes = status.st_size;
    file.seconds = status.st_mtim.tv_sec;
    file.nanoseconds = status.st_mtim.tv_nsec;
    file.header = read_image_header(input);
    if (!can_decode(file.header.kind))
      fail_user("the image {}: {}", file.path, decoder_advice(file.header.kind));
    if (file.header.color && demand_.channels == 1)
      fail_user(
          "the image {} has colors, and the images of the model have one channel: make it gray, or "
          "use a model of three channels",
          file.path);
  });
  for (const File& file : files_) bytes_ += file.bytes;
}

void ClassFolders::check_sizes() const {
  const File& first = files_.front();
  for (const File& file : files_) {
    const ImageHeader& h = file.header;
    if (demand_.side > 0) {
      const ScaledSize scaled = scaled_size(h.width, h.height, demand_.side);
      if (scaled.width > kMostPixels / scaled.height)
        fail_user(
            "the image {} has {} x {} pixels, too long a strip to be scaled to {} for its shorter "
            "side: remove it",
            file.path, h.width, h.height, demand_.side);
      continue;
    }
    if (h.width != first.header.width || h.height != first.header.height)
      fail_user(
          "the images have different sizes: {} has {} x {} pixels (width x height), and {} has {} "
          "x "
          "{}; dstrain.data.size scales all of them: --set dstrain.data.size={}",
          first.path, first.header.width, first.header.height, file.path, h.width, h.height,
          demand_.height);
    if (h.width != demand_.width || h.height != demand_.height)
      fail_user(
          "the image {} has {} x {} pixels (width x height), and those of the model have {} x {}{}",
          file.path, h.width, h.height, demand_.width, demand_.height,
          demand_.width == demand_.height
              ? fmt::format("; dstrain.data.size scales all of them: --set dstrain.data.size={}",
                            demand_.height)
              : ": scale them");
  }
}

void ClassFolders::hold_out(double share) {
  std::vector<size_t> held;
  for (int32_t label = 0; label < static_cast<int32_t>(names_.size()); ++label) {
    std::vector<size_t> own;
    for (size_t i = 0; i < files_.size(); ++i)
      if (files_[i].label == label) own.push_back(i);
    const auto kept = own.size() - static_cast<size_t>(static_cast<double>(own.size()) * share);
    order_.insert(order_.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(kept));
    held.insert(held.end(), own.begin() + static_cast<std::ptrdiff_t>(kept), own.end());
  }
  held_out_ = static_cast<int64_t>(held.size());
  order_.insert(order_.end(), held.begin(), held.end());
}

void ClassFolders::read_file(size_t index, std::vector<unsigned char>& bytes) const {
  const File& file = files_[index];
  const auto changed = [&file](const char* how) {
    fail_run(
        "the image {} {} since the run opened it: samples are no longer what they were; restore "
        "it and --resume from a checkpoint of before, or start again",
        file.path, how);
  };
  bytes.resize(static_cast<size_t>(file.bytes));
  struct stat status {};
  try {
    const InputFile input(file.path, "the image");
    if (::fstat(input.descriptor(), &status) != 0 || status.st_size != file.bytes)
      changed("has got another size");
    input.read_at(bytes.data(), file.bytes, 0);
  } catch (const UserError&) {
    changed("was removed or cut short");
  }
  if (status.st_mtim.tv_sec == file.seconds && status.st_mtim.tv_nsec == file.nanoseconds) return;
  // A copy or a touch changes the time alone.
  if (!has_sums_ || checksum_of(bytes.data(), file.bytes) != sums_[index])
    changed("was written to");
}

ImageView ClassFolders::image(int64_t sample, ImageScratch& scratch) const {
  const size_t index = order_[static_cast<size_t>(sample)];
  const File& file = files_[index];
  read_file(index, scratch.file);
  ImagePixels& image = scratch.image;
  image.width = file.header.width;
  image.height = file.header.height;
  image.channels = static_cast<int>(demand_.channels);
  image.values.resize(static_cast<size_t>(image.width * image.height * image.channels));
  const std::string problem =
      decode_image(file.header, scratch.file, image.channels, image.values.data());
  if (!problem.empty())
    fail_run(
        "the image {} is damaged: {}; restore or remove it, and --resume from the last checkpoint",
        file.path, problem);
  if (demand_.side > 0) scale_shorter_side(image, demand_.side, scratch.between);
  return {.data = image.values.data(),
          .width = image.width,
          .height = image.height,
          .channel = 1,
          .row = image.width * image.channels,
          .pixel = image.channels};
}

uint64_t ClassFolders::checksum() const {
  std::call_once(summed_, [this] {
    std::vector<uint64_t> sums(files_.size());
    run_ranges(thread_count(), static_cast<int64_t>(files_.size()),
               [&](int64_t begin, int64_t end) {
                 std::vector<unsigned char> bytes;
                 for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                   read_file(i, bytes);
                   sums[i] = checksum_of(bytes.data(), files_[i].bytes);
                 }
               });
    sums_ = std::move(sums);
    has_sums_ = true;
  });
  std::string all;
  for (size_t i = 0; i < files_.size(); ++i) {
    const fs::path path(files_[i].path);
    all += fmt::format("{}/{} {:016x}\n", path.parent_path().filename().string(),
                       path.filename().string(), sums_[i]);
  }
  return checksum_of(all.data(), static_cast<int64_t>(all.size()));
}

SplitFiles ClassFolders::files() const {
  return {.paths = folders_, .bytes = bytes_};
}

std::string ClassFolders::text() const {
  return fmt::format("images in {} ({})", counted(classes(), "class", "es"),
                     names_of_classes(names_));
}

}  // namespace dstrain
