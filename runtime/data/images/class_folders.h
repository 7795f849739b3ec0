// ClassFolders: folders that have a folder for each class, and in these PNG and JPEG files. Classes are the names of their
// folders in the order of their bytes; the files of a class are in the order of the bytes of their names.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/data/images/image_header.h"
#include "runtime/data/images/image_source.h"

namespace dstrain {

class ClassFolders final : public ImageSource {
 public:
  // Finds the files and reads their headers. Of several folders each has all classes. The share of the samples that is held
  // out is the end of each class. Throws UserError if there are less than two classes or a class without images, for a file
  // that is none (read_image_header()), that the build cannot decode, or that has color where the model's images have
  // one channel, and where images are not scaled for sizes other than the model's.
  ClassFolders(const std::vector<std::string>& folders, const ImageDemand& demand);

  int64_t samples() const override { return static_cast<int64_t>(order_.size()); }
  int64_t held_out() const override { return held_out_; }
  int32_t label(int64_t sample) const override { return file_of(sample).label; }
  ImageView image(int64_t sample, ImageScratch& scratch) const override;
  int64_t classes() const override { return static_cast<int64_t>(names_.size()); }
  uint64_t checksum() const override;
  SplitFiles files() const override;
  void check_whole() const override {}      // each read takes the whole file
  void check_unchanged() const override {}  // each read looks at its file
  std::string text() const override;
  const std::vector<std::string>& names() const { return names_; }  // of the classes

 private:
  struct File {
    std::string path;
    int32_t label = 0;
    ImageHeader header{};
    int64_t bytes = 0;
    int64_t seconds = 0, nanoseconds = 0;  // when it was written
  };
  const File& file_of(int64_t sample) const { return files_[order_[static_cast<size_t>(sample)]]; }
  void find_files(const std::string& folder);
  void open_files();
  void check_sizes() const;
  void hold_out(double share);
  // Reads the bytes of a file, which must be those of when it was opened.
  void read_file(size_t file, std::vector<unsigned char>& bytes) const;

  std::vector<std::string> folders_;
  ImageDemand demand_;
  std::vector<std::string> names_;
  std::vector<File> files_;    // by folder, class and name
  std::vector<size_t> order_;  // the file of each sample
  int64_t held_out_ = 0, bytes_ = 0;
  mutable std::once_flag summed_;
  mutable std::vector<uint64_t> sums_;  // of files_, when checksum() was called
  mutable std::atomic<bool> has_sums_{false};
};

}  // namespace dstrain
