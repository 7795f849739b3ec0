#include "runtime/data/images/image_dataset.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "runtime/config/family/image_inputs.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/file/data_files.h"
#include "runtime/data/images/cifar_files.h"
#include "runtime/data/images/class_folders.h"

namespace dstrain {
namespace {

constexpr int64_t kImagesAlone = 8;  // that one thread reads sooner than several

ImageDemand demand_of(const Job& job) {
  const ImageInputs inputs = image_inputs(job.model);
  check(inputs.problem.empty(), "{}", inputs.problem);
  return {.channels = inputs.channels,
          .height = inputs.height,
          .width = inputs.width,
          .side = job.data.images.size,
          .held_out = job.data.val_fraction};
}

// Opens folders of classes, CIFAR's files, or folders of these.
std::unique_ptr<ImageSource> open_images(const std::vector<std::string>& paths,
                                         const ImageDemand& demand) {
  std::vector<std::string> folders, files;
  for (const std::string& path : paths) {
    std::error_code none;
    if (!std::filesystem::exists(path, none))
      fail_user(
          "the images {} are not there: give a folder that has a folder for each class, or "
          "CIFAR-10's binary version, which is cifar-10-binary.tar.gz of "
          "www.cs.toronto.edu/~kriz/cifar.html: tar -xzf cifar-10-binary.tar.gz makes the folder "
          "cifar-10-batches-bin",
          path);
    if (!std::filesystem::is_directory(path, none)) {
      files.push_back(path);
      continue;
    }
    const std::vector<std::string> cifar = cifar_files_of(path, demand.validation);
    files.insert(files.end(), cifar.begin(), cifar.end());
    if (cifar.empty()) folders.push_back(path);
  }
  if (!folders.empty() && !files.empty())
    fail_user(
        "the data are the folder {} and the file {}: give folders of classes, or CIFAR's binary "
        "files",
        folders.front(), files.front());
  if (folders.empty()) return std::make_unique<CifarFiles>(files, demand);
  return std::make_unique<ClassFolders>(folders, demand);
}

std::unique_ptr<ImageSource> open_training_images(const Job& job, const ImageDemand& demand) {
  const std::vector<std::string> paths = data_files(job.data.paths);
  if (paths.empty())
    fail_user(
        "there are no images to train on: give a folder with --data or dstrain.data.path, in which "
        "each class has a folder, or CIFAR-10's binary files");
  return open_images(paths, demand);
}

}  // namespace

ImageDataset::ImageDataset(const Job& job)
    : demand_(demand_of(job)),
      images_(image_inputs(job.model).images->name),
      labels_(image_inputs(job.model).labels->name),
      source_(open_training_images(job, demand_)),
      make_(job.data.images, job.seed, demand_),
      name_(job.data.paths.size() == 1 ? job.data.paths.front() : names_of_files(job.data.paths)) {
  if (!job.data.val_path.empty()) {
    ImageDemand demand = demand_;
    demand.validation = true;
    demand.held_out = 0;
    validation_ = open_images(data_files({job.data.val_path}), demand);
  }
  const int64_t all = source_->samples(), held_out = validation_ ? 0 : source_->held_out();
  parts_[0] = {.source = source_.get(), .begin = 0, .samples = all - held_out, .order = {}};
  parts_[1] =
      validation_
          ? Part{.source = validation_.get(),
                 .begin = 0,
                 .samples = validation_->samples(),
                 .order = {}}
          : Part{
                .source = source_.get(), .begin = all - held_out, .samples = held_out, .order = {}};
  check_parts(job);
  check_classes(job);
  // The images of a folder are by class, of which a validation of some of them is to have all.
  for (Part& part : parts_)
    if (part.samples > 0)
      part.order.emplace(part.samples, &part != parts_ || job.data.random_order, job.seed);
  vocabulary_.format = DataFormat::automatic;
}

void ImageDataset::check_parts(const Job& job) const {
  const auto complain = [&](std::string_view name, std::string_view advice) {
    fail_user(
        "the data {} have {}, of which the {} part has none (val_fraction {}): give more images, "
        "{}",
        name_, counted(source_->samples(), "image"), name, job.data.val_fraction, advice);
  };
  if (parts_[0].samples == 0) complain("training", "or a smaller val_fraction");
  if (parts_[1].samples == 0 && job.eval_interval > 0)
    complain("validation", "a larger val_fraction, or eval_interval 0");
}

void ImageDataset::check_classes(const Job& job) const {
  const ModelInput* const labels = image_inputs(job.model).labels;
  if (!labels->classes.empty())
    if (const int64_t classes = job.model.integer(labels->classes); source_->classes() > classes)
      fail_user("the data {} have {}, and the model has {}: give {} {}", name_,
                counted(source_->classes(), "class", "es"), classes, model_path(labels->classes),
                source_->classes());
  if (!validation_ || validation_->classes() == source_->classes()) {
    const auto *const training = dynamic_cast<const ClassFolders*>(source_.get()),
                      *const other = dynamic_cast<const ClassFolders*>(validation_.get());
    if (training == nullptr || other == nullptr || training->names() == other->names()) return;
  }
  fail_user(
      "the data {} are {}, and those for validation, {}, are {}: give images of the same classes",
      name_, source_->text(), job.data.val_path, validation_->text());
}

void ImageDataset::read(Split split, int64_t first, int64_t count,
                        std::span<const InputTensor> inputs) const {
  const Part& from = part(split);
  check(from.order.has_value(), "a part without samples is read");
  for (const InputTensor& input : inputs) {
    const bool is_label = input.name == labels_;
    const int64_t elements = is_label ? 1 : demand_.channels * demand_.height * demand_.width;
    check((is_label || input.name == images_) && input.role == InputRole::array &&
              input.tensor.elements() == count * elements,
          "{} images of {} values are read into {}, which is {} {}", count, elements, input.name,
          name_of(input.tensor.dtype), to_string(input.tensor.shape));
    const auto sample_at = [&from, first](int64_t i) {
      return from.begin + from.order->sample_at(first + i);
    };
    if (is_label) {
      for (int64_t i = 0; i < count; ++i)
        input.tensor.as<int32_t>()[i] = from.source->label(sample_at(i));
      continue;
    }
    run_ranges(count > kImagesAlone ? thread_count() : 1, count, [&](int64_t begin, int64_t end) {
      ImageScratch scratch;
      for (int64_t i = begin; i < end; ++i) {
        const ImageView image = from.source->image(sample_at(i), scratch);
        const ImagePart part =
            split == Split::train ? make_.training_part(first + i, image) : make_.middle(image);
        make_.write(image, part, input.tensor.as<float>() + i * elements);
      }
    });
  }
  from.source->check_whole();
}

void ImageDataset::check_unchanged() const {
  source_->check_unchanged();
  if (validation_) validation_->check_unchanged();
}

SplitFiles ImageDataset::files(Split split) const {
  if (split == Split::train) return source_->files();
  return validation_ ? validation_->files() : SplitFiles{};
}

std::string ImageDataset::summary() const {
  std::string text = fmt::format("{}: {}; {}", name_, source_->text(),
                                 counted(parts_[0].samples, "training sample"));
  if (validation_) return text + fmt::format(", {} for validation", parts_[1].samples);
  if (parts_[1].samples > 0) return text + fmt::format(", {} for validation", parts_[1].samples);
  return text + ", none for validation";
}

}  // namespace dstrain
