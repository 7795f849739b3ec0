// ImageDataset: samples that are images with a label, for models that read the two as arrays.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "runtime/config/job.h"
#include "runtime/data/dataset.h"
#include "runtime/data/images/image_samples.h"
#include "runtime/data/images/image_source.h"
#include "runtime/data/sample_order.h"

namespace dstrain {

class ImageDataset final : public Dataset {
 public:
  // Opens the images of the job, whose data have the format images. Throws UserError if there are none, if they are damaged
  // as far as their headers tell or do not fit the model (ClassFolders, CifarFiles), if a part that the job uses has no sample,
  // or if the images have more classes than the model, or those for validation others than those for training.
  explicit ImageDataset(const Job& job);

  int64_t samples(Split split) const override { return part(split).samples; }
  // Allocates what decoding a file takes.
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }  // none: size 0
  uint64_t fingerprint() const override { return source_->checksum(); }
  SplitFiles files(Split split) const override;
  uint64_t validation_fingerprint() const override {
    return validation_ ? validation_->checksum() : 0;
  }
  void check_unchanged() const override;
  std::string summary() const override;

 private:
  // The samples [begin, begin + samples) of a source.
  struct Part {
    const ImageSource* source = nullptr;
    int64_t begin = 0, samples = 0;
    std::optional<SampleOrder> order;  // if there is a sample
  };

  const Part& part(Split split) const { return parts_[split == Split::validation]; }
  void check_parts(const Job& job) const;
  void check_classes(const Job& job) const;

  ImageDemand demand_;
  std::string images_, labels_;                       // the inputs
  std::unique_ptr<ImageSource> source_, validation_;  // null: the end of the training images
  ImageSamples make_;
  Part parts_[2];
  std::string name_;  // of the data, in messages
  Vocabulary vocabulary_;
};

}  // namespace dstrain
