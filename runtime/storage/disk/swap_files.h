// SwapFiles: the files behind a disk store, one in each directory (a directory per drive). Their blocks are reserved
// when they are created. The files have no names: the system frees their blocks with the object, and also when the
// process is killed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/storage/disk/io_calls.h"

namespace dstrain {

class SwapFile;

class SwapFiles {
 public:
  // Creates a file of `bytes_each` in each of the directories, which are made in existing ones. If the file system has
  // no O_DIRECT, warns once and goes through the page cache. Throws UserError before anything is written if a file system
  // has too little space or if a file cannot be created, and RunError if its blocks cannot be reserved.
  SwapFiles(const std::vector<std::string>& directories, int64_t bytes_each, IoCalls& calls);
  SwapFiles(const SwapFiles&) = delete;
  SwapFiles& operator=(const SwapFiles&) = delete;
  ~SwapFiles();

  int count() const { return static_cast<int>(files_.size()); }
  int64_t bytes_each() const { return bytes_each_; }
  // Whether reads and writes pass the page cache by. Their places and sizes must then be multiples of kDiskBlock.
  bool direct() const { return direct_; }
  int descriptor(int file) const;
  // Returns what messages call the file.
  const std::string& name(int file) const;
  IoCalls& calls() const { return calls_; }

 private:
  IoCalls& calls_;
  int64_t bytes_each_;
  bool direct_ = false;
  std::vector<std::unique_ptr<SwapFile>> files_;
};

// Returns the directory itself, or the existing one in which it will be made. Throws UserError if neither is there: the
// drive may not be mounted, and files of its size would fill another one.
std::string existing_swap_directory(const std::string& directory);

}  // namespace dstrain
