// CifarFiles: CIFAR-10's and CIFAR-100's binary files: records of a label (in CIFAR-100 two, of which the second one is
// read) and 3 x 32 x 32 values, channels one after another.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/data/file/data_file.h"
#include "runtime/data/images/image_source.h"

namespace dstrain {

class CifarFiles final : public ImageSource {
 public:
  // Opens the files, whose samples are counted through. Throws UserError if there is none, if their sizes are no multiple of
  // a record's, if both kinds are among them, if a label is none, or if the model's images are others than 3 x 32 x 32.
  CifarFiles(const std::vector<std::string>& paths, const ImageDemand& demand);

  int64_t samples() const override { return first_.back(); }
  int64_t held_out() const override { return held_out_; }
  int32_t label(int64_t sample) const override;
  ImageView image(int64_t sample, ImageScratch& scratch) const override;
  int64_t classes() const override { return labels_ == 1 ? 10 : 100; }
  uint64_t checksum() const override;
  SplitFiles files() const override;
  void check_whole() const override;
  void check_unchanged() const override;
  std::string text() const override;

 private:
  void add(const std::string& path);
  const unsigned char* record(int64_t sample) const;

  std::vector<std::unique_ptr<DataFile>> files_;
  std::vector<int64_t> first_{0};  // the first sample of each file, and behind the last one
  int64_t labels_ = 0;             // bytes in front of the values of a record: 1 or 2
  int64_t held_out_ = 0;
};

// Returns the binary files of CIFAR in a folder, those for training or for validation; none if it has none.
std::vector<std::string> cifar_files_of(const std::string& folder, bool validation);

}  // namespace dstrain
